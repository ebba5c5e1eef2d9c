"""A picture of a stored image for a page: small, made of its first page, in the decoding process.

The decoding process loads this module for a picture only: workers make none.
"""

import io
import warnings
from base64 import b64encode
from math import log2
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

EDGE = 1600
"""Maximum pixels of the longer side of a picture."""

PIXELS = 150_000_000
"""Maximum pixels of an image with a picture: an A1 sheet at 400 dpi has 124 million, in 500 MB of memory."""

FORMATS = ("TIFF", "JPEG2000", "JPEG", "PNG", "GIF", "WEBP", "BMP")

_QUALITY = 80
_PROFILE = 1 << 16
"""Maximum bytes of a colour profile that a picture keeps."""


def picture(path: Path) -> list[Any]:
    """Width, height and bytes (WebP, base64) of the picture, and the pages of the image; or why there is
    none, alone.
    """
    Image.MAX_IMAGE_PIXELS = None  # compared here
    warnings.simplefilter("ignore")  # of damaged images, which would fill the log
    try:
        with Image.open(path, formats=FORMATS) as image:
            width, height = image.size
            if width * height > PIXELS:
                return [f"it has {width:,} x {height:,} pixels, and more than {PIXELS:,} have no preview"]
            pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
            if image.format == "JPEG2000":  # decode the resolution that is needed
                halvings = max(0, int(log2(max(width, height) / EDGE)))
                image.reduce = min(halvings, _halvings(path))  # type: ignore[assignment]
                image.load()
            small = _small(image)
            profile = image.info.get("icc_profile") or b""
            keeps = image.mode in ("RGB", "RGBA") and len(profile) <= _PROFILE
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - decoders of damaged images raise anything
        return ["it cannot be read as an image: it is damaged, or of a kind that is not known here"]
    data = io.BytesIO()
    small.save(data, "WEBP", quality=_QUALITY, icc_profile=profile if keeps else b"")
    return [*small.size, pages, b64encode(data.getvalue()).decode()]


def _halvings(path: Path) -> int:
    """Times that a JPEG 2000 image can be halved: the decomposition levels in its COD segment
    (ISO/IEC 15444-1, A.6.1), which follows the markers SOC and SIZ.
    """
    with path.open("rb") as file:
        head = file.read(1 << 20)
    segment = head.find(b"\xff\x52", head.find(b"\xff\x4f\xff\x51") + 1)
    return head[segment + 9] if 0 < segment < len(head) - 9 else 0


def _small(image: Image.Image) -> Image.Image:
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode in ("P", "PA"):
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    image.thumbnail((EDGE, EDGE), reducing_gap=2.0)
    if image.mode.startswith("I;16"):
        image = image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    elif image.mode in ("I", "F"):
        low, high = image.getextrema()
        scale = 255 / ((high - low) or 1)  # type: ignore[operator]
        image = image.point(lambda value: value * scale - low * scale).convert("L")  # type: ignore[operator]
    return ImageOps.exif_transpose(image.convert("RGBA" if image.has_transparency_data else "RGB"))
