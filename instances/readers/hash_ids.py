"""The field ``hash_ids`` of traces: a prompt's blocks, in every object or in none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError

if TYPE_CHECKING:
    from orsched.instances.readers.objects import Fields

FIELD = "hash_ids"


def hash_ids(
    fields: Fields,
    values: dict[str, Any],
    line: int,
    size: int,
    *,
    hashed: bool,
    open_block: bool = False,
) -> list[int]:
    """Return the blocks of a prompt of ``input_length`` tokens, each of ``size`` tokens.

    Args:
        fields, values, line: the object, and where it is.
        size: tokens of a block.
        hashed: whether the first object of the file has blocks.
        open_block: whether a last block that is not full may be left out.

    Raises:
        InputError: this object has blocks and the first none, or the reverse; or they are too many
            or too few.
    """
    if hashed != (FIELD in values):
        raise InputError(
            "some requests have blocks and others none",
            file=fields.file,
            row=line,
            field=FIELD,
            remedy="give hash_ids for every request or for none",
        )
    blocks, prompt = (
        fields.whole_list(values, FIELD, line),
        fields.whole(values, "input_length", line),
    )
    full, all_of_them = prompt // size, -(-prompt // size)
    if len(blocks) != all_of_them and not (open_block and len(blocks) == full):
        raise InputError(
            f"{len(blocks)} blocks of {size} tokens for a prompt of {prompt}",
            file=fields.file,
            row=line,
            field=FIELD,
            remedy="check hash_ids; blocks of another size are read in Python: "
            "orsched.instances.readers.read(path, block_tokens=16)",
        )
    return blocks
