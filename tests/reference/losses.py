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
    negatives_are: str = "hardest",
) -> float:
    """Eq. 4 with the hardest negative of every anchor, the sum or the mean over all, the mean over the pairs."""
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
            chosen = [max(negatives)] if negatives_are == "hardest" and negatives else negatives
            hinges = [max(0.0, margin - (positive - negative)) for negative in chosen]
            total += sum(hinges) / (len(hinges) if negatives_are == "mean" and hinges else 1)
    return total / len(groups)


def levels_loss(
    similarities: list[list[float]],
    counted: list[bool],
    groups: list[int],
    margin: float,
    negatives_are: str = "sum",
) -> float:
    """HGAN, Eq. 9: [γ − S(V, T) + S(V, T⁻)]₊ and [γ − S(V, T) + S(V⁻, T)]₊ of all negatives, the mean over the pairs.

    As decided, a pair whose sentence is not counted is no anchor, no negative, and none that the mean is over.
    """
    pairs = [pair for pair, there in enumerate(counted) if there]
    total = 0.0
    for a in pairs:
        negatives = [n for n in pairs if groups[n] != groups[a]]
        for row in ([similarities[a][n] for n in negatives], [similarities[n][a] for n in negatives]):
            hinges = [max(0.0, margin - similarities[a][a] + negative) for negative in row]
            if not hinges:
                continue
            how = {"sum": sum(hinges), "mean": sum(hinges) / len(hinges), "hardest": max(hinges)}
            total += how[negatives_are]
    return total / len(pairs) if pairs else 0.0


def cmce_probabilities(feature: list[float], buffer: list[list[float]], sigma: float) -> list[float]:
    """Eq. 1–2: p_i = exp(S_iᵀ v / σ) / Σ_j exp(S_jᵀ v / σ), for a feature v of any length."""
    length = math.sqrt(sum(x * x for x in feature))
    affinities = [sum(a * b / length for a, b in zip(row, feature, strict=True)) / sigma for row in buffer]
    highest = max(affinities)
    terms = [math.exp(affinity - highest) for affinity in affinities]
    return [term / sum(terms) for term in terms]


def cmce_loss(
    images: list[list[float]],
    texts: list[list[float]],
    identities: list[int],
    image_buffer: list[list[float]],
    text_buffer: list[list[float]],
    sigma_images: float,
    sigma_texts: float,
) -> float:
    """Eq. 3 by the number of pairs: −Σ_v log p^S_{t_v}(v) − Σ_s log p^V_{t_s}(s)."""
    total = 0.0
    for v, s, t in zip(images, texts, identities, strict=True):
        total -= math.log(cmce_probabilities(v, text_buffer, sigma_images)[t])
        total -= math.log(cmce_probabilities(s, image_buffer, sigma_texts)[t])
    return total / len(identities)


def cmce_gradient(v: list[float], t: int, buffer: list[list[float]], sigma: float) -> list[float]:
    """Eq. 4–5, for a unit feature v: [(p_t − 1) S_t + Σ_{j≠t} p_j S_j] / σ."""
    p = cmce_probabilities(v, buffer, sigma)
    gradient = [(p[t] - 1) * x / sigma for x in buffer[t]]
    for j, row in enumerate(buffer):
        if j != t:
            gradient = [g + p[j] * x / sigma for g, x in zip(gradient, row, strict=True)]
    return gradient


def cmce_rows(
    rows: list[list[float]],
    features: list[list[float]],
    identities: list[int],
    samples: list[int],
    *,
    keep: float = 0.5,
) -> list[list[float]]:
    """Section 3.1.1: for the sampled identities "their corresponding rows … are updated by the newly generated
    features. If a corresponding identity t has multiple entity images or descriptions", S_t = 0.5 S_t + 0.5 s.

    s is the mean of an identity's unit features in the batch; `samples` are its samples in the training split.
    """
    new = [list(row) for row in rows]
    for t in set(identities):
        own = [feature for feature, identity in zip(features, identities, strict=True) if identity == t]
        units = [[x / math.sqrt(sum(y * y for y in feature)) for x in feature] for feature in own]
        mean = [sum(column) / len(units) for column in zip(*units, strict=True)]
        if samples[t] > 1:
            new[t] = [keep * old + (1 - keep) * x for old, x in zip(rows[t], mean, strict=True)]
        else:
            new[t] = mean
    return new


def dot(x: list[float], y: list[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def rank_loss(k: int) -> float:
    """ℒ(k) = Σ_{i ≤ k} 1/i (MNiL, Eq. 2)."""
    return sum(1 / i for i in range(1, k + 1))


def sextuple_loss(
    rows: list[dict[str, list[float]]],
    v_x: list[int],
    v_y: list[int],
    n: int,
    *,
    rho: float,
    tau: float,
    beta_1: float,
    beta_2: float,
    to_text: bool = True,
    to_image: bool = True,
) -> float:
    """MNiL, Eq. 6, the mean over the sextuples; a row has "x", "x+", "x-", "y", "y+", "y-".

    v = 0: there is no violator, and no term that needs one.
    """
    total = 0.0
    for row, vx, vy in zip(rows, v_x, v_y, strict=True):
        if to_text and vx:  # Eq. 1
            margin = rho + dot(row["x"], row["y-"]) - dot(row["x"], row["y+"])
            total += max(0, rank_loss((n - 1) // vx) * margin)
        if to_image and vy:  # Eq. 3
            margin = rho + dot(row["x-"], row["y"]) - dot(row["x+"], row["y"])
            total += max(0, rank_loss((n - 1) // vy) * margin)
        if to_text and vy:  # Eq. 4; x_k is y_i's violator
            total += beta_1 * max(0, tau + dot(row["x"], row["x-"]) - dot(row["x"], row["x+"]))
        if to_image and vx:  # Eq. 5
            total += beta_2 * max(0, tau + dot(row["y"], row["y-"]) - dot(row["y"], row["y+"]))
    return total / len(rows)


def sextuple_gradients(
    row: dict[str, list[float]],
    vx: int,
    vy: int,
    n: int,
    *,
    rho: float,
    tau: float,
    beta_1: float,
    beta_2: float,
) -> dict[str, list[float]]:
    """MNiL, Eq. 7–8: the gradients of one sextuple, by its six samples."""
    p, p_plus, p_minus, t, t_plus, t_minus = (row[name] for name in ("x", "x+", "x-", "y", "y+", "y-"))
    i_xy = dot(p, t_minus) - dot(p, t_plus) + rho > 0
    i_yx = dot(p_minus, t) - dot(p_plus, t) + rho > 0
    i_xx = dot(p, p_minus) - dot(p, p_plus) + tau > 0
    i_yy = dot(t, t_minus) - dot(t, t_plus) + tau > 0
    w_x, w_y = rank_loss((n - 1) // vx), rank_loss((n - 1) // vy)

    def sum_of(*parts: tuple[float, list[float]]) -> list[float]:
        return [sum(factor * vector[d] for factor, vector in parts) for d in range(len(p))]

    return {
        "x": sum_of(
            (w_x * i_xy, t_minus), (-w_x * i_xy, t_plus), (beta_1 * i_xx, p_minus), (-beta_1 * i_xx, p_plus)
        ),
        "y+": sum_of((-w_x * i_xy, p), (-beta_2 * i_yy, t)),
        "y-": sum_of((w_x * i_xy, p), (beta_2 * i_yy, t)),
        "y": sum_of(
            (w_y * i_yx, p_minus), (-w_y * i_yx, p_plus), (beta_2 * i_yy, t_minus), (-beta_2 * i_yy, t_plus)
        ),
        "x+": sum_of((-w_y * i_yx, t), (-beta_1 * i_xx, p)),
        "x-": sum_of((w_y * i_yx, t), (beta_1 * i_xx, p)),
    }


def pair_loss(
    images: list[list[float]], texts: list[list[float]], groups: list[int], epsilon: float = 1e-8
) -> float:
    """HGAN, Eq. 11 in both directions: KL(p || q + epsilon), the mean over the rows."""

    def one_way(anchors: list[list[float]], others: list[list[float]]) -> float:
        total = 0.0
        for anchor, group in zip(anchors, groups, strict=True):
            z = []
            for other in others:
                length = math.sqrt(sum(value * value for value in other))
                z.append(sum(a * b for a, b in zip(anchor, other, strict=True)) / length)
            partition = sum(math.exp(value) for value in z)
            matches = groups.count(group)
            for value, theirs in zip(z, groups, strict=True):
                p = math.exp(value) / partition
                q = (1 if theirs == group else 0) / matches
                total += p * math.log(p / (q + epsilon))
        return total / len(anchors)

    return one_way(images, texts) + one_way(texts, images)


def sdm_loss(
    images: list[list[float]],
    texts: list[list[float]],
    groups: list[int],
    temperature: float,
    epsilon: float = 1e-8,
) -> float:
    """IRRA's SDM in both directions: KL(p || q + epsilon) of softmax(cos / tau), the mean over the rows."""

    def one_way(anchors: list[list[float]], others: list[list[float]]) -> float:
        total = 0.0
        for anchor, group in zip(anchors, groups, strict=True):
            similarities = [cosine(anchor, other) / temperature for other in others]
            highest = max(similarities)
            partition = sum(math.exp(similarity - highest) for similarity in similarities)
            matches = sum(1 for other in groups if other == group)
            for similarity, other in zip(similarities, groups, strict=True):
                log_p = similarity - highest - math.log(partition)
                q = (1.0 if other == group else 0.0) / matches
                total += math.exp(log_p) * (log_p - math.log(q + epsilon))
        return total / len(anchors)

    return one_way(images, texts) + one_way(texts, images)


Rows = list[list[float]]


def contrastive_loss(
    images: Rows, texts: Rows, groups: list[int], scale: float, *, pairs_alone: bool = False
) -> float:
    """CLIP, Figure 3: the mean of two cross-entropies of cos * exp(t).

    The targets are uniform over the pairs of the anchor's group; with `pairs_alone` the anchor's own pair, as CLIP.
    """
    total = 0.0
    for anchors, others in ((images, texts), (texts, images)):
        for i, anchor in enumerate(anchors):
            logits = [scale * cosine(anchor, other) for other in others]
            highest = max(logits)
            log_partition = highest + math.log(sum(math.exp(logit - highest) for logit in logits))
            right = [i] if pairs_alone else [j for j, group in enumerate(groups) if group == groups[i]]
            for j in right:
                total -= (logits[j] - log_partition) / len(right)
    return total / len(groups) / 2


def maxsim(regions: Rows, words: Rows) -> float:
    """FILIP, section 3.1, of unit vectors: the mean of s^I and s^T; 0 without a word."""
    if not words:
        return 0.0
    of_image = sum(max(cosine(region, word) for word in words) for region in regions) / len(regions)
    of_text = sum(max(cosine(region, word) for region in regions) for word in words) / len(words)
    return (of_image + of_text) / 2


def maxsim_loss(similarities: Rows, counted: list[bool], groups: list[int], scale: float) -> float:
    """FILIP's contrastive loss, with the targets of `contrastive_loss`; pairs that are not counted are not there."""
    kept = [i for i, there in enumerate(counted) if there]
    total = 0.0
    for i in kept:
        for to_text in (True, False):
            logits = [scale * (similarities[i][j] if to_text else similarities[j][i]) for j in kept]
            log_partition = max(logits) + math.log(sum(math.exp(logit - max(logits)) for logit in logits))
            right = [n for n, j in enumerate(kept) if groups[j] == groups[i]]
            total -= sum(logits[n] - log_partition for n in right) / len(right)
    return total / len(kept) / 2 if kept else 0.0


def siglip_loss(images: Rows, texts: Rows, groups: list[int], scale: float, bias: float) -> float:
    """SigLIP, Algorithm 1: - sum over all pairs of log sigmoid(z (t x.y + b)), by the batch."""
    total = 0.0
    for i, image in enumerate(images):
        for j, text in enumerate(texts):
            z = 1 if groups[i] == groups[j] else -1
            total -= math.log(1 / (1 + math.exp(-z * (scale * cosine(image, text) + bias))))
    return total / len(images)


def tal_loss(
    images: Rows,
    texts: Rows,
    groups: list[int],
    margin: float,
    tau: float,
    *,
    weights_of: tuple[Rows, Rows] | None = None,
) -> float:
    """RDE's TAL in both directions: [m - S+ + tau log sum_j q_ij exp(S_ij / tau)]_+, the mean over the anchors.

    `weights_of`: the features whose similarities give the weights alpha of S+, if they are not the same: numbers for
    a gradient.
    """
    fixed = weights_of or (images, texts)
    total = 0.0
    for anchors, others, anchors_fixed, others_fixed in (
        (images, texts, fixed[0], fixed[1]),
        (texts, images, fixed[1], fixed[0]),
    ):
        for i, anchor in enumerate(anchors):
            right = [j for j, group in enumerate(groups) if group == groups[i]]
            wrong = [j for j, group in enumerate(groups) if group != groups[i]]
            if not wrong:
                continue
            terms = [math.exp(cosine(anchors_fixed[i], others_fixed[j]) / tau) for j in right]
            positive = sum(
                term / sum(terms) * cosine(anchor, others[j]) for j, term in zip(right, terms, strict=True)
            )
            negative = tau * math.log(sum(math.exp(cosine(anchor, others[j]) / tau) for j in wrong))
            total += max(0.0, margin - positive + negative)
    return total / len(groups)


def circle_loss(
    images: Rows,
    texts: Rows,
    groups: list[int],
    m: float,
    gamma: float,
    *,
    weights_of: tuple[Rows, Rows] | None = None,
) -> float:
    """Circle loss of each anchor in both directions, the mean over the anchors; `weights_of` as in `tal_loss`."""
    fixed = weights_of or (images, texts)
    total = 0.0
    for anchors, others, anchors_fixed, others_fixed in (
        (images, texts, fixed[0], fixed[1]),
        (texts, images, fixed[1], fixed[0]),
    ):
        for i, anchor in enumerate(anchors):
            of_others, of_matches = 0.0, 0.0
            for j, group in enumerate(groups):
                s, s_fixed = cosine(anchor, others[j]), cosine(anchors_fixed[i], others_fixed[j])
                if group == groups[i]:
                    alpha = max(0.0, 1 + m - s_fixed)
                    of_matches += math.exp(-gamma * alpha * (s - (1 - m)))
                else:
                    alpha = max(0.0, s_fixed - -m)
                    of_others += math.exp(gamma * alpha * (s - m))
            total += math.log(1 + of_others * of_matches)
    return total / len(groups)


def composed_loss(
    queries: list[list[float]],
    targets: list[list[float]],
    references: list[list[float]],
    target_ids: list[int],
    reference_ids: list[int],
    temperature: float,
) -> float:
    """−log (exp(cos(q_i, t_i) / τ) / Σ_c exp(cos(q_i, c) / τ)), the mean over i.

    c: the own target, and every target and reference of the batch that is another picture than it.
    """
    total = 0.0
    for i, query in enumerate(queries):
        own = math.exp(cosine(query, targets[i]) / temperature)
        below = own
        for vectors, ids in ((targets, target_ids), (references, reference_ids)):
            for vector, number in zip(vectors, ids, strict=True):
                if number != target_ids[i]:
                    below += math.exp(cosine(query, vector) / temperature)
        total -= math.log(own / below)
    return total / len(queries)
