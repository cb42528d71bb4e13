// The parts of the site, each fetched once and when it is first needed, and the text tower that they make.

import { tokenizer } from "./tokens.js";
import { vectors } from "./rank.js";

const from = (name) => new URL(`../${name}`, import.meta.url).href;

async function answer(name) {
  const found = await fetch(from(name), { credentials: "same-origin" });
  if (!found.ok) throw new Error(`${name}: ${found.status}`);
  return found;
}

const json = async (name) => (await answer(name)).json();

/** The bytes of a file; `onBytes` is told of each part that comes. */
async function bytes(name, onBytes) {
  const found = await answer(name);
  const parts = [];
  const reader = found.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    onBytes(part.value.length);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

export const site = await json("site.json");

let columns;

/** The names and facts of all pictures, a column each. */
export const pictures = () => (columns ??= json("pictures.json"));

/** All that a search needs; `onProgress(share)` while it comes. */
export async function load(onProgress) {
  const sizes = site.bytes;
  const names = ["text.onnx", "library/ort-wasm.wasm", "vectors.bin"];
  const total = names.reduce((sum, name) => sum + sizes[name], 0);
  let come = 0;
  const onBytes = (more) => onProgress(Math.min(1, (come += more) / total));
  const [ort, facts, words, tower, wasm, rows] = await Promise.all([
    import(from("library/ort.js")),
    pictures(),
    json("tokenizer.json"),
    ...names.map((name) => bytes(name, onBytes)),
  ]);
  const read = await tokenizer(site.tokenizer, words, from("library/tokenizers.js"));
  // One thread: several need headers that a plain host of files does not send.
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: from("library/ort-wasm.js") };
  ort.env.wasm.wasmBinary = wasm;
  const session = await ort.InferenceSession.create(tower, { executionProviders: ["wasm"], logSeverityLevel: 3 });
  return { pictures: facts, read, vectors: vectors(rows.buffer, site.pictures, site.dim), encode: encoder(ort, session) };
}

/** A function from token ids to the query's vector. */
function encoder(ort, session) {
  const { any_length: short, words } = site.tokenizer;
  return async (ids) => {
    const row = new BigInt64Array(short ? Math.max(2, ids.length) : words);
    ids.forEach((id, place) => (row[place] = BigInt(id)));
    const input = new ort.Tensor("int64", row, [1, row.length]);
    const found = await session.run({ [session.inputNames[0]]: input });
    return found[session.outputNames[0]].data;
  };
}
