"""Writes micro_draft.json and pebble_draft.json: drafts worked apart from the Go code.

The micro draft is that of the specification (draft.md 13.1), with the generated weights of its 12.1. The pebble draft has
the trained weights of fixtures/pebble/draft, on generated taps and embeddings.

Plain Python floats (IEEE double), sums by math.fsum. Angles are rounded to single precision; nothing else is. Run it in
its own folder.
"""

import json
import math
import struct
from types import SimpleNamespace

GROUP, EPS = 16, 1e-6
MICRO = SimpleNamespace(
    h=32, inner=48, layers=2, taps=2, heads=4, kv=2, d=8, rows=4, window=6, vocab=24, rank=8, theta=1e4,
    anchor=7, mask=23, p=9, k=4,
)
PEBBLE = SimpleNamespace(
    h=256, inner=512, layers=2, taps=3, heads=32, kv=8, d=128, rows=8, window=2048, vocab=4096, rank=256, theta=1e7,
    anchor=7, mask=4095, p=5, k=16,
)
M64 = (1 << 64) - 1


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16(x):
    b = struct.unpack("<I", struct.pack("<f", x))[0]
    b = (b + 0x7FFF + ((b >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", b))[0]


def values(name, count, columns):
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & M64
    out = []
    for i in range(count):
        v = (seed + (i + 1) * 0x9E3779B97F4A7C15) & M64
        v = ((v ^ v >> 30) * 0xBF58476D1CE4E5B9) & M64
        v = ((v ^ v >> 27) * 0x94D049BB133111EB) & M64
        g = 2 * ((v ^ v >> 31) >> 40) * 2.0**-24 - 1
        if name.endswith("norm.weight"):
            x = 1 + 0.25 * g
        elif name.endswith("base_kernel"):
            x = 1 + 0.1 * g if i // columns % 2 == 0 else 0.2 * g
        elif name.endswith("kernel_projection.weight"):
            x = 0.1 * math.sqrt(3 / columns) * g
        elif name.endswith("codebook"):
            x = 4 / math.sqrt(columns) * g
        elif name.endswith(".weight"):
            x = math.sqrt(3 / columns) * g
        else:
            x = g
        out.append(bf16(x))
    return out


def vector(name, n):
    return values(name, n, n)


def matrix(name, rows, columns):
    v = values(name, rows * columns, columns)
    return [v[r * columns : (r + 1) * columns] for r in range(rows)]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def times(w, x):
    return [dot(row, x) for row in w]


def rms(x, w):
    scale = math.sqrt(dot(x, x) / len(x) + EPS)
    return [a / scale * b for a, b in zip(x, w, strict=True)]


def silu(x):
    return x / (1 + math.exp(-x))


class Generated:
    """The weights of draft.md 12.1."""

    @staticmethod
    def matrix(name, rows, columns):
        v = values(name, rows * columns, columns)
        return [v[r * columns : (r + 1) * columns] for r in range(rows)]


class Safetensors:
    """The BF16 weights of a file."""

    def __init__(self, path):
        with open(path, "rb") as f:
            data = f.read()
        n = struct.unpack("<Q", data[:8])[0]
        self.header, self.data = json.loads(data[8 : 8 + n]), data[8 + n :]

    def matrix(self, name, rows, columns):
        t = self.header[name]
        begin, end = t["data_offsets"]
        assert t["dtype"] == "BF16" and end - begin == 2 * rows * columns, name
        v = [
            struct.unpack("<f", struct.pack("<I", b << 16))[0]
            for b in struct.unpack(f"<{rows * columns}H", self.data[begin:end])
        ]
        return [v[r * columns : (r + 1) * columns] for r in range(rows)]


class Draft:
    def __init__(self, s, weights):
        self.s, self.w = s, weights
        self.inv = [f32(s.theta ** (-i / (s.d // 2))) for i in range(s.d // 2)]

    def vector(self, name, n):
        return self.w.matrix(name, 1, n)[0]

    def rope(self, x, position):
        y, half = list(x), self.s.d // 2
        for i, inv in enumerate(self.inv):
            angle = f32(position * inv)
            c, s = math.cos(angle), math.sin(angle)
            a, b = x[i], x[i + half]
            y[i], y[i + half] = a * c - b * s, b * c + a * s
        return y

    def heads(self, x):
        return [x[i : i + self.s.d] for i in range(0, len(x), self.s.d)]

    def conv(self, side, x, base, dynamic):
        out, groups = [], self.s.h // GROUP
        for r, row in enumerate(x):
            new = []
            for i, v in enumerate(row):
                taps = [base[2 * side + t][i] + dynamic[r][(2 * side + t) * groups + i // GROUP] for t in (0, 1)]
                before = x[r - 1][i] if r > 0 else 0.0
                new.append(v * taps[0] + before * taps[1])
            out.append(new)
        return out

    def attend(self, q, keys, vals, k, v):
        """q [rows][heads][d], keys and vals by position, k and v [rows][kv][d]."""
        s, out = self.s, []
        for r in range(s.rows):
            seen = range(max(0, s.p + r - (s.window - 1)), s.p)
            row = []
            for h in range(s.heads):
                g = h // (s.heads // s.kv)
                ks = [keys[t][g] for t in seen] + [k[i][g] for i in range(s.rows)]
                vs = [vals[t][g] for t in seen] + [v[i][g] for i in range(s.rows)]
                scores = [dot(q[r][h], one) / math.sqrt(s.d) for one in ks]
                top = max(scores)
                e = [math.exp(x - top) for x in scores]
                total = math.fsum(e)
                row += [math.fsum(w * one[d] for w, one in zip(e, vs)) / total for d in range(s.d)]
            out.append(row)
        return out

    def layer(self, l, x, context):
        s, name, matrix, vector = self.s, f"layers.{l}.", self.w.matrix, self.vector
        q_norm = vector(name + "self_attn.q_norm.weight", s.d)
        k_norm = vector(name + "self_attn.k_norm.weight", s.d)
        wq = matrix(name + "self_attn.q_proj.weight", s.heads * s.d, s.h)
        wk = matrix(name + "self_attn.k_proj.weight", s.kv * s.d, s.h)
        wv = matrix(name + "self_attn.v_proj.weight", s.kv * s.d, s.h)
        wo = matrix(name + "self_attn.o_proj.weight", s.h, s.heads * s.d)

        keys = [[self.rope(rms(k, k_norm), t) for k in self.heads(times(wk, h))] for t, h in enumerate(context)]
        vals = [self.heads(times(wv, h)) for h in context]

        base = matrix(name + "attention_conv.base_kernel", 4, s.h)
        project = matrix(name + "attention_conv.kernel_projection.weight", s.h // 4, s.h)
        a = [rms(row, vector(name + "input_layernorm.weight", s.h)) for row in x]
        dynamic = [times(project, row) for row in a]
        c = self.conv(0, a, base, dynamic)
        q = [[self.rope(rms(h, q_norm), s.p + r) for h in self.heads(times(wq, row))] for r, row in enumerate(c)]
        k = [[self.rope(rms(h, k_norm), s.p + r) for h in self.heads(times(wk, row))] for r, row in enumerate(c)]
        v = [self.heads(times(wv, row)) for row in c]
        o = [times(wo, row) for row in self.attend(q, keys, vals, k, v)]
        y = [[p + q for p, q in zip(u, w)] for u, w in zip(self.conv(1, o, base, dynamic), x)]

        base = matrix(name + "mlp_conv.base_kernel", 4, s.h)
        project = matrix(name + "mlp_conv.kernel_projection.weight", s.h // 4, s.h)
        gate = matrix(name + "mlp.gate_proj.weight", s.inner, s.h)
        up = matrix(name + "mlp.up_proj.weight", s.inner, s.h)
        down = matrix(name + "mlp.down_proj.weight", s.h, s.inner)
        m = [rms(row, vector(name + "post_attention_layernorm.weight", s.h)) for row in y]
        dynamic = [times(project, row) for row in m]
        e = self.conv(0, m, base, dynamic)
        wide = [[silu(g) * u for g, u in zip(times(gate, row), times(up, row))] for row in e]
        f = [times(down, row) for row in wide]
        return [[p + q for p, q in zip(u, w)] for u, w in zip(self.conv(1, f, base, dynamic), y)]

    def run(self, mask):
        """Context rows, rows after every layer, final rows. Embeddings and taps are generated."""
        s = self.s
        taps = Generated.matrix("taps", s.p, s.taps * s.h)
        fc = self.w.matrix("fc.weight", s.h, s.taps * s.h)
        hidden_norm = self.vector("hidden_norm.weight", s.h)
        context = [rms(times(fc, f), hidden_norm) for f in taps]
        x = [Generated.matrix("token_embd", s.vocab, s.h)[s.anchor]] + [mask] * (s.rows - 1)
        after = []
        for l in range(s.layers):
            x = self.layer(l, x, context)
            after.append(x)
        return context, after, [rms(row, self.vector("norm.weight", s.h)) for row in x]

    def walk(self, final, logits):
        """The greedy walk over the lattice of every position."""
        s, matrix = self.s, self.w.matrix
        select = matrix("candidate_selector.hidden_projection.weight", s.rank, s.h)
        before = matrix("candidate_selector.predecessor_codebook", s.vocab, s.rank)
        after = matrix("candidate_selector.successor_codebook", s.vocab, s.rank)
        out, chosen = [], s.anchor
        for j in range(s.rows - 1):
            row = logits[j + 1]
            cand = sorted(range(s.vocab), key=lambda t: (-row[t], t))[: s.k]
            state = times(select, final[j + 1])
            score = [row[t] + math.fsum(a * b * c for a, b, c in zip(before[chosen], state, after[t])) for t in cand]
            top = max(score)
            chosen = cand[score.index(top)]
            out.append({
                "candidates": cand,
                "unary": [row[t] for t in cand],
                "state": state,
                "score": score,
                "confidence": 1 / math.fsum(math.exp(x - top) for x in score),
                "token": chosen,
            })
        return out


def write(name, value):
    with open(name, "w") as f:
        json.dump(value, f, separators=(",", ":"))
        f.write("\n")


def micro():
    s = MICRO
    draft, head = Draft(s, Generated), Generated.matrix("output.weight", s.vocab, s.h)
    context, after, final = draft.run(Generated.matrix("token_embd", s.vocab, s.h)[s.mask])
    logits = [times(head, row) for row in final]
    _, _, masked = draft.run(Generated.matrix("mask_embedding", 1, s.h)[0])
    write("micro_draft.json", {
        "context": context,
        "layers": after,
        "final": final,
        "logits": logits[1:],
        "walk": draft.walk(final, logits),
        "mask_embedding": {"final": masked, "logits": [times(head, row) for row in masked[1:]]},
    })


def pebble():
    s = PEBBLE
    draft = Draft(s, Safetensors("../../fixtures/pebble/draft/model.safetensors"))
    _, _, final = draft.run(Generated.matrix("token_embd", s.vocab, s.h)[s.mask])
    # The head multiplies embeddings here: only its values' order and size matter.
    logits = [[]] + [times(Generated.matrix("token_embd", s.vocab, s.h), row) for row in final[1:]]
    walk = draft.walk(final, logits)
    for w in walk:
        w["state"] = w["state"][:16]
    write("pebble_draft.json", {"final": [final[0], final[3], final[7]], "walk": walk})


if __name__ == "__main__":
    micro()
    pebble()
