// Pictures by their score for a query: all by the first value of each number, the best again by both.
// See limner/site/vectors.py, which finds the same.

const FINER = 254;
const CANDIDATES = 200;

/** The parts of vectors.bin. */
export function vectors(buffer, count, dim) {
  if (buffer.byteLength !== count * (4 + 2 * dim)) throw new Error("vectors.bin: not of this site's size");
  return {
    count,
    dim,
    scales: new Float32Array(buffer, 0, count), // the lowest byte first, as in every browser's machine
    first: new Int8Array(buffer, 4 * count, count * dim),
    second: new Int8Array(buffer, count * (4 + dim), count * dim),
  };
}

/** The k best rows as {row, score}, best first; equal scores by row. `without` is a row that takes no part. */
export function best({ count, dim, scales, first, second }, query, k, without = -1) {
  const coarse = new Float32Array(count);
  for (let row = 0, at = 0; row < count; row++) {
    let sum = 0;
    for (let place = 0; place < dim; place++) sum += query[place] * first[at++];
    coarse[row] = sum * scales[row];
  }
  const wanted = Math.min(count, Math.max(CANDIDATES, 4 * k) + 1); // one more for the row that takes no part
  const least = Float32Array.from(coarse).sort()[count - wanted];
  const found = [];
  for (let row = 0; row < count; row++) {
    if (coarse[row] < least || row === without) continue;
    let sum = 0;
    for (let place = 0, at = row * dim; place < dim; place++, at++) sum += query[place] * (first[at] + second[at] / FINER);
    found.push({ row, score: sum * scales[row] });
  }
  return found.sort((one, other) => other.score - one.score || one.row - other.row).slice(0, k);
}

/** The unit vector of a row. */
export function vectorOf({ dim, scales, first, second }, row) {
  const from = row * dim;
  return Float32Array.from({ length: dim }, (_, place) => scales[row] * (first[from + place] + second[from + place] / FINER));
}
