"""Slow twins of the losses: loops in float64, typed from the equations."""

import math


def cosine(x: list[float], y: list[float]) -> float:
    """D(x, y) = x/|x| · y/|y| (dual-path, section 4.1)."""
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    return dot / math.sqrt(sum(a * a for a in x)) / math.sqrt(sum(b * b for b in y))


def instance_loss(
    features: list[list[float]],
    weight: list[list[float]],
    classes: list[int],
    *,
    bias: list[float] | None = None,
    scale: float | None = None,
    smoothing: float = 0.0,
) -> float:
    """Eq. 5–6: P = softmax(Wᵀ f), L = −log P(c), the mean over the batch.

    The departures: a bias; the cosine times `scale` for Wᵀ f; the target 1 − smoothing + smoothing / classes for the
    true class and smoothing / classes for the others.
    """
    total = 0.0
    count = len(weight)
    for feature, c in zip(features, classes, strict=True):
        logits = []
        for k, row in enumerate(weight):
            logit = sum(w * f for w, f in zip(row, feature, strict=True))
            if scale is not None:
                logit = scale * cosine(row, feature)
            logits.append(logit + (bias[k] if bias is not None else 0.0))
        partition = sum(math.exp(logit) for logit in logits)
        for k, logit in enumerate(logits):
            target = smoothing / count + (1 - smoothing if k == c else 0.0)
            total -= target * math.log(math.exp(logit) / partition)
    return total / len(features)


def ranking_loss(
    images: list[list[float]],
    texts: list[list[float]],
    groups: list[int],
    margin: float,
    *,
    extra_images: list[tuple[list[float], int]] = [],  # noqa: B006 - never changed
    extra_texts: list[tuple[list[float], int]] = [],  # noqa: B006
    hardest: bool = True,
) -> float:
    """Eq. 4 with the hardest (or each) negative of every anchor, the mean over the pairs."""
    total = 0.0
    for a, group in enumerate(groups):
        positive = cosine(images[a], texts[a])
        text_negatives = [
            cosine(images[a], text)
            for text, other in [*zip(texts, groups, strict=True), *extra_texts]
            if other != group
        ]
        image_negatives = [
            cosine(texts[a], image)
            for image, other in [*zip(images, groups, strict=True), *extra_images]
            if other != group
        ]
        for negatives in (text_negatives, image_negatives):
            chosen = [max(negatives)] if hardest and negatives else negatives
            total += sum(max(0.0, margin - (positive - negative)) for negative in chosen)
    return total / len(groups)
