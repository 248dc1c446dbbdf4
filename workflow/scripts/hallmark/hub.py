"""Files of a Hugging Face hub repository through huggingface_hub. Selects nothing and verifies nothing.

Everything the library reads from the environment holds: HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE, HF_TOKEN. Downloads go on
where they stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hallmark.source_errors import SourceError

COMMIT = re.compile(r"[0-9a-f]{40}")


def commit(repo: str, revision: str) -> str:
    """The commit that a branch, tag or commit of a repository stands for."""
    if COMMIT.fullmatch(revision):
        return revision
    from huggingface_hub import HfApi

    with _explained(repo, revision):
        found = HfApi().model_info(repo, revision=revision).sha
    if found is None:
        raise SourceError(f"hub {repo} at {revision}: the server names no commit")
    return found


def paths(repo: str, revision: str) -> list[str]:
    """Every file of a repository at a revision."""
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    with _explained(repo, revision):
        tree = HfApi().list_repo_tree(repo, recursive=True, revision=revision)
        return [entry.path for entry in tree if isinstance(entry, RepoFile)]


def open_file(repo: str, revision: str, path: str) -> BinaryIO:
    """One file, from the library's cache or downloaded into it. The revision must be a commit."""
    if not COMMIT.fullmatch(revision):
        raise SourceError(f"hub {repo}: {revision!r} is no commit; the lock must name one. Run: hallmark lock")
    from huggingface_hub import hf_hub_download

    with _explained(repo, revision, path):
        return Path(hf_hub_download(repo, path, revision=revision)).open("rb")


@contextmanager
def _explained(repo: str, revision: str, path: str = "") -> Iterator[None]:
    """Turn the library's errors into SourceError."""
    from huggingface_hub import constants, errors

    http_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]  # of its HTTP library, whichever that is
    place = f"hub {repo} at {revision[:12]}" + (f", {path}" if path else "")
    offline = "HF_HUB_OFFLINE is set and it is not in the cache; unset it to download"
    try:
        yield
    except errors.GatedRepoError:
        raise SourceError(
            f"{place}: access must be granted first; accept its terms on the hub and set HF_TOKEN"
        ) from None
    except errors.RepositoryNotFoundError:
        raise SourceError(f"{place}: no such repository, or a private one (set HF_TOKEN)") from None
    except errors.RevisionNotFoundError:
        raise SourceError(f"{place}: no such revision") from None
    except errors.LocalEntryNotFoundError as error:
        why = (
            offline if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} does not answer, and it is not in the cache"
        )
        raise SourceError(f"{place}: {why}") from error
    except errors.EntryNotFoundError:
        raise SourceError(f"{place}: no such file") from None
    except errors.OfflineModeIsEnabled:
        raise SourceError(f"{place}: {offline}") from None
    except errors.HfHubHTTPError as error:
        raise SourceError(f"{place}: {constants.ENDPOINT} answered: {error}") from error
    except http_error as error:
        raise SourceError(f"{place}: {constants.ENDPOINT} does not answer ({error})") from error
