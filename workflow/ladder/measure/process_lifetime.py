"""Processes that end with the one that started them, so that no orphan goes on measuring."""

import ctypes
import logging
import os
import signal
import sys
import threading
import time


def die_with_parent() -> None:
    """Have Linux end this process when its parent ends, so that no orphan goes on measuring."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # The parent went before the request was in place.
        sys.exit(1)


def end_with_parent() -> None:
    """End this process when the one that started it is gone: a killed Snakemake leaves its jobs behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        logging.error("the process that started this measurement is gone; stopping")
        os._exit(3)  # The worker dies with us; see die_with_parent.

    threading.Thread(target=watch, daemon=True).start()
