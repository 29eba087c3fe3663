"""One line per log record on standard error: level, logger, message, then what it carries."""

import logging

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_PRIVATE_PREFIX = "lk.pii."


class LogLineFormatter(logging.Formatter):
    """Appends a record's extra values as ``name=value``, without speech, words and names."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Give the line of a record; its traceback follows on lines of its own."""
        extra = [
            f"{name}={value}"
            for name, value in vars(record).items()
            if name not in _STANDARD and not name.startswith(_PRIVATE_PREFIX)
        ]
        return " ".join([record.levelname, f"{record.name}:", record.message, *extra])


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send the log of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogLineFormatter())
    logging.basicConfig(level=level, handlers=[handler])
