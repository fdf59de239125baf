"""Identity from content: the same content always has the same id, on every machine.

An id is a tag that names the kind and the canonical form ("c1-" for calls), then a hash. Should the
form ever change, so does the tag: old and new ids are never mistaken for each other.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(order="sorted")


def content_id(tag: str, content: Any) -> str:
    """The id of `content`: a hash of its JSON with sorted keys."""
    return f"{tag}-{blake2b(_encoder.encode(content), digest_size=12).hexdigest()}"
