"""Slow twin of the identity-aware system's stage-2 network: loops over the equations, for one pair at a time."""

import math

Vector = list[float]
Matrix = list[Vector]


def times(matrix: Matrix, vector: Vector) -> Vector:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def plus(*vectors: Vector) -> Vector:
    return [sum(parts) for parts in zip(*vectors, strict=True)]


def softmax(scores: Vector) -> Vector:
    highest = max(scores)
    terms = [math.exp(score - highest) for score in scores]
    return [term / sum(terms) for term in terms]


def weighted(weights: Vector, vectors: Matrix) -> Vector:
    return [sum(w * x for w, x in zip(weights, column, strict=True)) for column in zip(*vectors, strict=True)]


def spatial_attention(
    regions: Matrix, h: Vector, w_i: Matrix, w_h: Matrix, b_h: Vector, w_p: Vector, b_p: float
) -> Vector:
    """Eq. 6–7: e_{t,k} = W_P tanh[W_I i_k + (W_H h_t + b_H)] + b_P, and its softmax over the regions."""
    scores = []
    for region in regions:
        inner = plus(times(w_i, region), times(w_h, h), b_h)
        scores.append(sum(p * math.tanh(x) for p, x in zip(w_p, inner, strict=True)) + b_p)
    return softmax(scores)


def semantic_attention(
    xs: Matrix, c: Vector, w_x: Matrix, b_x: Vector, w_c: Matrix, w_e: Vector, b_e: float
) -> Vector:
    """Eq. 9–10: e'_{m,t} = f(c_{m−1}, x_t), f two 1×1 convolutions of [c, x_t] with tanh between."""
    scores = []
    for x in xs:
        inner = plus(times(w_x, x), b_x, times(w_c, c))
        scores.append(sum(w * math.tanh(y) for w, y in zip(w_e, inner, strict=True)) + b_e)
    return softmax(scores)


def relu(vector: Vector) -> Vector:
    return [max(0.0, x) for x in vector]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def lstm_step(
    x: Vector, h: Vector, c: Vector, w_x: Matrix, w_h: Matrix, b_x: Vector, b_h: Vector
) -> tuple[Vector, Vector]:
    """One step of an LSTM with gates i, f, g, o, in this order."""
    gates = plus(times(w_x, x), b_x, times(w_h, h), b_h)
    n = len(h)
    i, f, g, o = (gates[k * n : (k + 1) * n] for k in range(4))
    memory = [sigmoid(f[k]) * c[k] + sigmoid(i[k]) * math.tanh(g[k]) for k in range(n)]
    return [sigmoid(o[k]) * math.tanh(memory[k]) for k in range(n)], memory
