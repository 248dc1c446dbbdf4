"""What can go wrong with a source. Apart from `sources`, because the modules below it raise these too."""


class SourceError(Exception):
    """A source cannot be brought. The text says what is in the way and what to do."""


class SourceMismatch(SourceError):
    """A file is not the one that the lock pins."""
