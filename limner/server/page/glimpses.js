// What is asked of the store beside a search: pictures to start from, sentences about a picture, pictures that are gone.

import { keptPicture } from "./address.js";
import { item, items, sentences } from "./api.js";

const STARTS = 12; // pictures of the store on the first visit
const DESCRIBING = 3; // sentences beside the pictures that are like one

/** Some pictures of the store; none where they cannot be had. */
export async function somePictures(store, signal) {
  if (!store.pictures) return [];
  const offset = Math.floor(Math.random() * Math.max(0, store.pictures - STARTS));
  try {
    return (await items(offset, STARTS, [], signal)).items;
  } catch (error) {
    if (error.name === "AbortError" || error.status === 401) throw error;
    return []; // the page works without them
  }
}

/** Sentences about the picture that is searched by; none for a text, or where they cannot be had. */
export async function describing(asked) {
  const picture = keptPicture(asked.picture);
  if (!picture && !asked.like) return [];
  const body = picture ? { image: picture.base64 } : { like: asked.like };
  try {
    const found = await sentences({ ...body, k: DESCRIBING });
    return [...new Set(found.sentences.map(({ text }) => text))];
  } catch {
    return []; // the pictures are there without them
  }
}

/** Those of some pictures that the store holds no more. */
export async function goneOf(ids, signal) {
  const gone = [];
  for (const id of ids)
    await item(id, signal).catch((error) => {
      if (error.status !== 404) throw error;
      gone.push(id);
    });
  return gone;
}
