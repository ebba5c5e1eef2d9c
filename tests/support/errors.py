import pytest

from pipeline.codes import Code
from pipeline.errors import ArklineError


def raises_code(code: Code, match: str | None = None) -> pytest.RaisesExc[ArklineError]:
    """The block raises an error with this code."""
    return pytest.raises(ArklineError, match=match, check=lambda error: error.code is code)
