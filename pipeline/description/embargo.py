"""A depositor's embargo, `mrt-embargo.txt`: `embargoEndDate:` and a date, or `none`.

arkline gives no access to objects. It stores the file for access systems, after checking that it is valid.
"""

from datetime import datetime

from pipeline.description import anvl
from pipeline.outcome import content

NAME = "mrt-embargo.txt"
_FIELD = "embargoEndDate"


def check(data: bytes) -> str:
    """A sentence with the embargo; StepFailed(content) if the file is invalid."""
    source = f"producer/{NAME}"
    ends = [value for name, value in anvl.parse(data, source) if name.lower() == _FIELD.lower()]
    if len(ends) != 1:
        raise content(f"{source} must have one line '{_FIELD}: 2030-01-31', or '{_FIELD}: none'")
    if ends[0].lower() == "none":
        return f"{source}: no embargo"
    try:
        datetime.fromisoformat(ends[0])
    except ValueError as error:
        raise content(
            f"{source}: '{ends[0][:100]}' is not an ISO 8601 date such as 2030-01-31 or "
            "2030-01-31T12:00:00Z, nor 'none'"
        ) from error
    return f"{source}: embargo until {ends[0]}"
