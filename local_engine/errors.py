"""What can go wrong in the local engine.

LocalEngineError
├── EngineSetupError    it cannot run here at all: no GPU, too little memory, missing packages, settings that do not fit
├── EngineDiedError     its process died; the page may be read again
├── PageRejectedError   this one page cannot be read: another attempt ends the same way
└── EngineClosedError   it was closed
"""


class LocalEngineError(Exception):
    """Base of all errors of the local engine; the message says what to do next."""


class EngineSetupError(LocalEngineError):
    """The engine cannot run on this machine with these settings."""


class EngineDiedError(LocalEngineError):
    """The engine's process died while the page was being read. Transient: the engine is started again once."""


class PageRejectedError(LocalEngineError):
    """The engine refuses this page, whatever the attempt."""


class EngineClosedError(LocalEngineError):
    """The engine was closed before the page was read."""
