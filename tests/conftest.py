"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    """Let the programs under test hear Ctrl-C.

    Whoever starts tests in the background of a shell starts them with SIGINT ignored, which
    every child would inherit.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
