"""Writes the fixtures of this folder with Pillow: image files, and goldens.json with what becomes of them.

    python3 goldens.py

Sizes are those of serving.md 6.17, computed here with Python's own rounding. Pixels are Pillow's: its bicubic resampling
of 8-bit channels, its EXIF orientation, and its compositing of transparent images on white.
"""

import base64
import hashlib
import io
import json
import math
import struct

import PIL
from PIL import Image, ImageOps

FACTOR, LEAST, MOST = 32, 65_536, 4_194_304


def target(height, width, most):
    h, w = round(height / FACTOR) * FACTOR, round(width / FACTOR) * FACTOR
    if h * w > most:
        beta = math.sqrt(height * width / most)
        h = max(FACTOR, math.floor(height / beta / FACTOR) * FACTOR)
        w = max(FACTOR, math.floor(width / beta / FACTOR) * FACTOR)
    elif h * w < LEAST:
        beta = math.sqrt(LEAST / (height * width))
        h, w = math.ceil(height * beta / FACTOR) * FACTOR, math.ceil(width * beta / FACTOR) * FACTOR
    while h * w > most:
        if h >= w and h > FACTOR:
            h -= FACTOR
        else:
            w -= FACTOR
    return h, w


def noise(width, height, channels, seed):
    """Bytes of SplitMix64, eight a number, little-endian."""
    mask, state, out = (1 << 64) - 1, seed, bytearray()
    while len(out) < width * height * channels:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        out += struct.pack("<Q", z ^ (z >> 31))
    return bytes(out[: width * height * channels])


def picture(width, height):
    """Smooth colors with an edge, which codecs that lose something still hold well."""
    m = Image.new("RGB", (width, height))
    m.putdata([
        (x * 255 // (width - 1), y * 255 // (height - 1), 200 if (x // 16 + y // 16) % 2 else 40)
        for y in range(height) for x in range(width)
    ])
    return m


def prepared(data, most=MOST):
    with Image.open(io.BytesIO(data)) as m:
        stored = m.size
        height, width = target(m.height, m.width, most)
        m = ImageOps.exif_transpose(m)
        if m.size != stored:
            height, width = width, height
        if m.mode in ("RGBA", "LA", "P"):
            m = m.convert("RGBA")
            m = Image.alpha_composite(Image.new("RGBA", m.size, "white"), m)
        m = m.convert("RGB")
        if m.size != (width, height):
            m = m.resize((width, height), Image.Resampling.BICUBIC)
        return m


def resizes():
    for seed, (w, h, tw, th) in enumerate([
        (7, 5, 32, 32), (32, 32, 32, 32), (40, 32, 32, 32), (32, 40, 32, 32), (33, 31, 64, 32), (200, 3, 32, 96),
        (64, 64, 32, 64), (100, 75, 96, 64), (1, 1, 64, 32), (313, 227, 160, 96),
    ]):
        m = Image.frombytes("RGB", (w, h), noise(w, h, 3, seed)).resize((tw, th), Image.Resampling.BICUBIC)
        c = {"width": w, "height": h, "to_width": tw, "to_height": th, "seed": seed, "sha256": hashlib.sha256(m.tobytes()).hexdigest()}
        if tw * th <= 1024:
            c["pixels"] = base64.b64encode(m.tobytes()).decode()
        yield c


def files():
    small = Image.frombytes("RGB", (24, 20), noise(24, 20, 3, 100))
    yield "rgb.png", small, {}
    yield "gray.png", Image.frombytes("L", (24, 20), noise(24, 20, 1, 101)), {}
    yield "palette.png", picture(48, 40).quantize(16), {}
    yield "rgba.png", Image.frombytes("RGBA", (24, 20), noise(24, 20, 4, 102)), {}
    yield "gray-alpha.png", Image.frombytes("LA", (24, 20), noise(24, 20, 2, 103)), {}
    yield "bits.png", Image.frombytes("1", (24, 20), noise(24, 20, 1, 104)[:60]), {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"orientation-{orientation}.png", small, {"exif": exif}
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "photo.jpg", picture(320, 224), {"quality": 95, "exif": exif}
    yield "progressive.jpg", picture(256, 256), {"quality": 90, "progressive": True}
    yield "gray.jpg", picture(256, 256).convert("L"), {"quality": 90}
    yield "lossy.webp", picture(256, 256), {"quality": 95}
    yield "lossless.webp", small, {"lossless": True, "exif": exif}
    yield "alpha.webp", Image.frombytes("RGBA", (24, 20), noise(24, 20, 4, 105)), {"lossless": True}
    frames = [picture(64, 48).quantize(32), picture(64, 48).rotate(180).quantize(32)]
    yield "animation.gif", frames[0], {"save_all": True, "append_images": frames[1:]}


def sizes():
    for most in (LEAST, 70_000, 1_048_576, MOST):
        for h, w in [
            (1400, 1000), (3024, 4032), (100, 100), (48, 1000), (16, 3000), (1080, 1920), (1, 1), (1, 200), (200, 1),
            (48, 48), (16, 16), (80, 112), (4096, 1024), (1024, 4096), (2048, 2048), (2049, 2047), (8000, 4000),
            (81920, 409), (255, 257), (256, 256), (304, 304), (33, 6000),
        ]:
            if max(h, w) <= 200 * min(h, w):
                th, tw = target(h, w, most)
                yield {"width": w, "height": h, "most": most, "to_width": tw, "to_height": th}


def main():
    out = {"pillow": PIL.__version__, "sizes": list(sizes()), "resizes": list(resizes()), "files": []}
    for name, m, options in files():
        m.save(name, **options)
        data = open(name, "rb").read()
        p = prepared(data)
        grid = struct.pack("<II", p.height // 16, p.width // 16)
        out["files"].append({
            "file": name, "width": p.width, "height": p.height,
            "digest": hashlib.sha256(grid + p.tobytes()).hexdigest(),
            # Means of blocks of 32 x 32 pixels, which codecs that round otherwise agree on.
            "means": base64.b64encode(p.resize((p.width // 32, p.height // 32), Image.Resampling.BOX).tobytes()).decode(),
        })
    with open("goldens.json", "w") as f:
        f.write(json.dumps(out).replace("{", "\n{") + "\n")


main()
