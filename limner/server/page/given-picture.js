// A picture that somebody chose, pasted or dropped, made ready to be sent.

import { t } from "./language.js";

const LARGE = 3_000_000; // bytes; above, a photo is sent smaller: no model looks at more than a few hundred pixels
const LONGEST_SIDE = 1600;

/** Reads the file: {name, url, base64}. Throws an Error fit for users when it is no picture. */
export async function readPicture(file) {
  if (file.type && !file.type.startsWith("image/"))
    throw new Error(t("noPicture", { name: file.name || t("that") }));
  const sent = file.size > LARGE ? await smaller(file) : file;
  return { name: file.name || t("ownPicture"), url: URL.createObjectURL(sent), base64: await base64(sent) };
}

/** The picture file among what was dropped or pasted, if any. */
export function pictureOf(transfer) {
  const files = [...(transfer?.files || [])];
  return files.find((file) => file.type.startsWith("image/")) || files[0] || null;
}

async function smaller(file) {
  try {
    const picture = await createImageBitmap(file);
    const share = Math.min(1, LONGEST_SIDE / Math.max(picture.width, picture.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(picture.width * share);
    canvas.height = Math.round(picture.height * share);
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.92));
    return blob || file;
  } catch {
    return file; // a form that only the server reads, perhaps: let it say so
  }
}

export async function base64(blob) {
  if (!blob.size) throw new Error(t("emptyFile"));
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(t("unreadable")));
    reader.readAsDataURL(blob);
  });
}
