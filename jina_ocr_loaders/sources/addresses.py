"""Which network addresses are public, and what a host name leads to."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from jina_ocr_loaders.errors import DownloadError, ForbiddenURLError
from jina_ocr_loaders.threads import in_daemon_thread

IPAddress = IPv4Address | IPv6Address
Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""Gives the addresses of a host name, as text; raises OSError where there are none."""

# The tables are our own because `ipaddress.is_global` differs between Python releases, and calls multicast, 6to4,
# NAT64 and site-local addresses global in some. Source: IANA's IPv4 and IPv6 Special-Purpose Address Registries.
NOT_PUBLIC_V4 = [
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "an address of this host"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a private address (carrier-grade NAT)"),
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "a metadata address (Azure)"),  # public by number, yet served inside Azure only
        ("169.254.0.0/16", "a link-local or metadata address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a reserved address"),
        ("192.88.99.0/24", "a reserved address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a reserved address"),
        ("198.51.100.0/24", "a reserved address"),
        ("203.0.113.0/24", "a reserved address"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
    )
]
NOT_PUBLIC_V6 = [
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "an address of this host"),
        ("::1/128", "a loopback address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/23", "a reserved address"),  # Teredo, benchmarking, ORCHID
        ("2001:db8::/32", "a reserved address"),
        ("3fff::/20", "a reserved address"),
    )
]
GLOBAL_UNICAST = IPv6Network("2000::/3")  # all that IANA has given out for use on the internet

# IPv6 forms that carry an IPv4 address, and the bits below which it lies: it is the IPv4 address that counts.
CARRIERS = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped (RFC 4291)
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64 (RFC 6052)
    (IPv6Network("2002::/16"), 80),  # 6to4 (RFC 3056)
)

HINT = "Pass allow_private_networks=True if you trust this address"


def why_not_public(address: str) -> str | None:
    """Say what is wrong with an address that is not a public one ("a loopback address"), or None if it is public."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        for network, shift in CARRIERS:
            if ip in network:
                return why_not_public(str(IPv4Address(int(ip) >> shift & 0xFFFFFFFF)))
        named = next((what for network, what in NOT_PUBLIC_V6 if ip in network), None)
        return named or (None if ip in GLOBAL_UNICAST else "a reserved address")
    return next((what for network, what in NOT_PUBLIC_V4 if ip in network), None)


def literal_address(host: str) -> str | None:
    """The address that a host spells out, in any form that a resolver takes, or None if it is a name.

    IPv4 addresses have forms that look like something else: 2130706433, 0x7f.1 and 017700000001 are all 127.0.0.1.
    """
    host = host.strip("[]")
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host.rstrip(".")))
    except (OSError, UnicodeError):
        return None


async def resolve(host: str) -> Sequence[str]:
    """The addresses of a host name, as the system's resolver gives them."""
    found = await in_daemon_thread(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def public_addresses(host: str, *, source: str, resolver: Resolver = resolve) -> Sequence[str]:
    """Look a host up and make sure that every address it has is public.

    Parameters:
        host: a name or an address.
        source: the document, as errors show it.
        resolver: another way to look names up.

    Returns:
        Its addresses, best first. Connect to these, not to the name: the next look-up may give others.

    Raises:
        ForbiddenURLError: one of them is not public.
        DownloadError: the name is not known.
    """
    literal = literal_address(host)
    if literal:
        addresses: Sequence[str] = [literal]
    else:
        try:
            addresses = await resolver(host)
        except (OSError, UnicodeError) as error:
            raise DownloadError(f"the host {host} was not found", source=source) from error
    for address in addresses:
        if what := why_not_public(address):
            is_at = "is" if literal else "leads to"
            raise ForbiddenURLError(f"not allowed: {host} {is_at} {what}. {HINT}", source=source)
    return addresses
