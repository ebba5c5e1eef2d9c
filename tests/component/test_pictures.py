"""Pictures of stored images are made in the decoding process, whatever the bytes are."""

import io
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pipeline.attempt import UNATTENDED
from pipeline.decoding import calls
from pipeline.decoding.calls import NoPicture, Picture, make_picture
from pipeline.decoding.decoder import Decoder
from pipeline.settings import Settings

GREY = Image.linear_gradient("L").resize((3000, 2000))
COLOUR = Image.merge("RGB", (GREY, GREY.rotate(180), GREY))


def example(mode: str) -> Image.Image:
    """The grey or the coloured image in this mode of Pillow."""
    if mode == "I;16":
        return GREY.convert("I").point(lambda value: value * 257).convert(mode)
    return (GREY if mode in ("L", "F", "1") else COLOUR).convert(mode)


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    decoder = Decoder(Settings(), seconds=5)
    yield decoder
    decoder.close()


def of(decoder: Decoder, folder: Path, data: bytes) -> Picture:
    path = folder / "image"
    path.write_bytes(data)
    return make_picture(decoder, path, "image", UNATTENDED)


def seen(picture: Picture) -> Image.Image:
    image = Image.open(io.BytesIO(b64decode(picture.data)))
    image.load()
    assert (image.format, image.size) == ("WEBP", (picture.width, picture.height))
    return image.convert("RGB")


def rows(image: Image.Image) -> bytes:
    """The brightness of each quarter, from top to bottom."""
    return image.convert("L").resize((1, 4), Image.Resampling.BOX).tobytes()


def written(image: Image.Image, kind: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


@pytest.mark.parametrize(
    ("mode", "kind", "options"),
    [
        ("RGB", "TIFF", {"compression": "tiff_lzw"}),
        ("RGB", "TIFF", {}),
        ("RGB", "JPEG2000", {}),
        ("RGB", "JPEG2000", {"num_resolutions": 1}),
        ("L", "JPEG2000", {"no_jp2": True}),
        ("RGB", "PNG", {}),
        ("CMYK", "TIFF", {}),
        ("P", "TIFF", {}),
        ("YCbCr", "TIFF", {"compression": "jpeg"}),
        ("I;16", "TIFF", {}),
        ("F", "TIFF", {}),
        ("1", "TIFF", {"compression": "group4"}),
    ],
    ids=str,
)
def test_an_image_of_every_kind_has_a_small_picture_that_looks_like_it(
    decoder: Decoder, tmp_path: Path, mode: str, kind: str, options: dict[str, Any]
) -> None:
    image = example(mode)
    picture = of(decoder, tmp_path, written(image, kind, **options))

    assert (picture.width, picture.height, picture.pages) == (1600, 1067, 1)
    expected = image.convert("RGB") if image.mode not in ("F", "I;16") else GREY
    for row, wanted in zip(rows(seen(picture)), rows(expected), strict=True):
        assert abs(row - wanted) < 25


def test_the_picture_of_several_pages_is_the_first_and_a_small_image_keeps_its_size(
    decoder: Decoder, tmp_path: Path
) -> None:
    pages = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue", "blue")]
    picture = of(decoder, tmp_path, written(pages[0], "TIFF", save_all=True, append_images=pages[1:]))

    assert (picture.width, picture.height, picture.pages) == (40, 30, 3)
    red, _, blue = seen(picture).resize((1, 1)).tobytes()
    assert red > 200 > 50 > blue


def png_of(width: int, height: int) -> bytes:
    """A PNG that says it has this size, and has no pixel."""
    image = written(Image.new("1", (1, 1)), "PNG")
    header = b"IHDR" + width.to_bytes(4) + height.to_bytes(4) + image[24:29]
    return image[:12] + header + zlib.crc32(header).to_bytes(4) + image[33:]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: png_of(200_000, 200_000), "200,000 x 200,000 pixels"),
        (lambda: written(Image.new("1", (40_000, 40_000)), "TIFF", compression="group4"), "pixels"),
        (lambda: written(COLOUR, "TIFF")[:-100], "cannot be read as an image"),
        (lambda: written(COLOUR, "JPEG2000")[:9000], "cannot be read as an image"),
        (lambda: b"II*\0", "cannot be read as an image"),
        (lambda: b"", "cannot be read as an image"),
        (lambda: b"<svg/>", "cannot be read as an image"),
    ],
    ids=["png-bomb", "tiff-bomb", "cut-tiff", "cut-jp2", "no-tiff", "empty", "markup"],
)
def test_what_has_no_picture_says_why(
    decoder: Decoder, tmp_path: Path, make: Callable[[], bytes], why: str
) -> None:
    with pytest.raises(NoPicture, match=why):
        of(decoder, tmp_path, make())


def test_a_bomb_ends_in_the_decoding_process_and_the_next_image_has_its_picture(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PICTURE_MEMORY", 300_000_000)
    bomb = written(Image.new("RGB", (12_000, 12_000)), "TIFF", compression="tiff_deflate")
    assert len(bomb) < 3_000_000

    with pytest.raises(NoPicture, match="more memory or processor time than a preview may use"):
        of(decoder, tmp_path, bomb)

    assert of(decoder, tmp_path, written(GREY, "PNG")).width == 1600


@pytest.mark.parametrize("seed", range(20))
def test_damage_anywhere_is_a_picture_or_a_reason(decoder: Decoder, tmp_path: Path, seed: int) -> None:
    data = bytearray(written(COLOUR.resize((300, 200)), "TIFF" if seed % 2 else "JPEG2000"))
    for place in range(seed, len(data), len(data) // 20):
        data[place] ^= 1 << (seed % 8)
    with suppress(NoPicture):
        seen(of(decoder, tmp_path, bytes(data)))
