"""Which addresses are public, in whatever form they are written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from jina_ocr_loaders.errors import DownloadError, ForbiddenURLError
from jina_ocr_loaders.sources.addresses import literal_address, public_addresses, resolve, why_not_public

PUBLIC = [
    "1.1.1.1",
    "93.184.216.34",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.0.1",
    "2606:4700::1111",
    "2a00:1450:4001::1",
]
NOT_PUBLIC = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "this host": ["0.0.0.0", "0.1.2.3", "::"],
    "private": [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "fd12::1",
        "fc00::1",
        "fec0::1",
    ],
    "link-local": ["169.254.1.1", "fe80::1", "fe80::1%eth0"],
    # AWS, Google and Azure; AWS over IPv6; Alibaba; Oracle; Azure's wire server
    "metadata": ["169.254.169.254", "168.63.129.16"],
    "": ["fd00:ec2::254", "100.100.100.200", "192.0.0.192"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "reserved": [
        *("240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1"),
        *(
            "2001:db8::1",
            "3fff::1",
            "2001::1",
            "100::1",
            "5f00::1",
            "64:ff9b:1::1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
        ),
    ],
}


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_public(address):
    """Addresses of the internet, also right beside private ranges, may be fetched."""
    assert why_not_public(address) is None


@pytest.mark.parametrize(("what", "address"), [(what, one) for what, many in NOT_PUBLIC.items() for one in many])
def test_special_addresses_are_not_public(what, address):
    """Every kind of special address is refused, and called what it is."""
    assert what in (why_not_public(address) or "PUBLIC")


@pytest.mark.parametrize("carrier", ["::ffff:{0}", "64:ff9b::{0}", "2002:{1}:{2}::1"])
@pytest.mark.parametrize(("inner", "public"), [("127.0.0.1", False), ("169.254.169.254", False), ("1.1.1.1", True)])
def test_an_ipv4_address_inside_an_ipv6_one_is_what_counts(carrier, inner, public):
    """IPv4-mapped, NAT64 and 6to4 addresses are as public as the IPv4 address that they carry."""
    a, b, c, d = map(int, inner.split("."))
    address = carrier.format(inner, f"{a:02x}{b:02x}", f"{c:02x}{d:02x}")
    assert (why_not_public(address) is None) is public


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.1",
        "0x7f.1",
        "0177.0.0.01",
        "127.0.0.1.",
        "0x7F.0.0.1",
    ],
)
def test_every_spelling_of_an_ipv4_address_is_read(host):
    """Decimal, octal, hexadecimal and shortened forms are the address that a resolver would make of them."""
    assert literal_address(host) == "127.0.0.1"


def test_names_are_no_addresses():
    """A host name is looked up, even one that begins like a number."""
    assert [literal_address(host) for host in ("example.com", "1password.com", "", "dead.beef")] == [None] * 4


def refusal(host: str, *addresses: str) -> ForbiddenURLError:
    async def resolver(name: str) -> Sequence[str]:
        assert name == host
        return addresses

    with pytest.raises(ForbiddenURLError) as caught:
        asyncio.run(public_addresses(host, source="x", resolver=resolver))
    return caught.value


def test_a_name_with_one_private_address_among_public_ones_is_refused():
    """All addresses of a name must be public: which of them is connected to is not ours to say."""
    error = refusal("mixed.example", "93.184.216.34", "10.0.0.1")
    assert error.message.startswith("not allowed: mixed.example leads to a private address")
    assert "allow_private_networks=True" in error.message


def test_the_address_behind_a_name_is_not_told():
    """A refusal tells a model what kind of address a name has, not which."""
    assert "10.0.0.1" not in str(refusal("intranet.example", "10.0.0.1"))


def test_localhost_is_found_by_the_system_and_refused():
    """The system's own resolver is used by default, and its answer is checked."""
    assert {"127.0.0.1", "::1"} & set(asyncio.run(resolve("localhost")))
    with pytest.raises(ForbiddenURLError, match="localhost leads to a loopback address"):
        asyncio.run(public_addresses("localhost", source="x"))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".example", "a..example"])
def test_a_name_that_does_not_exist_is_a_download_error(host):
    """Unknown names and impossible ones get the same typed error."""
    with pytest.raises(DownloadError, match="was not found"):
        asyncio.run(public_addresses(host, source="x"))
