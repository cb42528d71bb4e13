// The server: requests, its token, its pictures.

import { t } from "./language.js";

/** What went wrong, in the server's words. `status` is 0 where no answer came. */
export class Problem extends Error {
  constructor(status, title, detail, { errors = [], wait = 0 } = {}) {
    super(detail || title);
    Object.assign(this, { status, title, detail, errors, wait });
  }
}

// Of the server's titles those that people meet; the catalogue has them in each language.
const TITLES = { 404: "unknownThing", 409: "unanswerable", 429: "tooMany", 500: "serverFailed", 503: "serverBusy" };
const KEPT = "limner.token";
const REMEMBERED = "limner.remembered"; // that the browser has the token in a cookie, which no script reads
let token = stored();
let remembered = wasRemembered();
let wanted = false; // that it is to be remembered, once the server has taken it

function stored() {
  try {
    const kept = sessionStorage.getItem(KEPT) || "";
    return isToken(kept) ? kept : "";
  } catch {
    return "";
  }
}

/** Whether it can be a token at all; other characters cannot be sent. */
export function isToken(text) {
  return /^[\x21-\x7e]+$/.test(text);
}

function wasRemembered() {
  try {
    return localStorage.getItem(REMEMBERED) === "1";
  } catch {
    return false;
  }
}

function noteRemembered(now) {
  remembered = now;
  try {
    if (now) localStorage.setItem(REMEMBERED, "1");
    else localStorage.removeItem(REMEMBERED);
  } catch {
    // Without storage the page asks for the token's right and gets it, and only cannot offer to forget it.
  }
}

export const hasToken = () => token !== "" || remembered;

/** Sends this token from now on; `remember`: by a cookie in place of the tab's storage. */
export function setToken(value, remember = false) {
  token = value;
  wanted = remember;
  noteRemembered(false);
  dropPictures();
}

/** Forgets the token, the cookie too. */
export async function forgetToken() {
  const cookie = remembered;
  setToken("");
  await keepToken();
  if (cookie) await answer("v1/token", { method: "DELETE" }).catch(() => {});
}

/** Keeps the token, which the server has taken, until the tab is closed, or in a cookie. */
export async function keepToken() {
  if (token && wanted) {
    await answer("v1/token", { method: "POST" });
    noteRemembered(true);
    token = "";
  }
  try {
    if (token) sessionStorage.setItem(KEPT, token);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // Without storage the token lasts as long as the page.
  }
}

async function answer(path, { body, signal, method = body ? "POST" : "GET" } = {}) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  const options = { headers, signal, method, body: body && JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, t("unreachable"), t("unreachableDetail"));
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // A proxy's page, or nothing: the status has to do.
  }
  const wait = Number(response.headers.get("Retry-After")) || 0;
  const errors = Array.isArray(body.errors) ? body.errors : [];
  const title = t(TITLES[response.status] ?? "refused");
  return new Problem(
    response.status,
    title,
    typeof body.detail === "string" ? body.detail : t("refusedDetail", { status: String(response.status) }),
    { errors, wait },
  );
}

const json = async (path, options) => (await answer(path, options)).json();

export const info = (signal) => json("v1/info", { signal });
export const alerts = () => json("v1/alerts");
export const saveAlert = (body) => json("v1/alerts", { body });
export const removeAlert = (name) => answer(`v1/alerts/${encodeURIComponent(name)}`, { method: "DELETE" });
export const following = () => json("v1/following");
export const search = (body, signal) => json("v1/search", { body, signal });
export const sentences = (body, signal) => json("v1/sentences", { body, signal });
export const explain = (text, id, signal) => json("v1/explain", { body: { text, id }, signal });
/** A file of an export: {blob, name}. */
export async function exportFile(body, signal) {
  const response = await answer("v1/export", { body, signal });
  const name = /filename="([\w.-]+)"/.exec(response.headers.get("Content-Disposition") || "")?.[1] || "limner-export";
  return { blob: await response.blob(), name };
}
export const add = (body, signal) => json("v1/items", { body, signal });
export const remove = (id) => json(`v1/items/${encodeURIComponent(id)}`, { method: "DELETE" });

/** Asks again as long as the server asks to wait. */
export async function patiently(ask, signal) {
  for (;;) {
    try {
      return await ask();
    } catch (problem) {
      if (!problem.wait || ![429, 503].includes(problem.status)) throw problem;
      await new Promise((resolve) => setTimeout(resolve, 1000 * problem.wait));
      signal?.throwIfAborted();
    }
  }
}

export const item = (id, signal) => json(`v1/items/${encodeURIComponent(id)}`, { signal });

export function items(offset, limit, where, signal, newest = false) {
  const query = new URLSearchParams({ offset, limit, newest });
  for (const condition of where) query.append("where", condition);
  return json(`v1/items?${query}`, { signal });
}

const blobs = new Map();

/** The address of a picture ("images") or its small form ("thumbnails") for an <img>. */
export async function pictureUrl(kind, id) {
  const path = `v1/${kind}/${encodeURIComponent(id)}`;
  if (!token) return path;
  // An <img> sends no Authorization header.
  let url = blobs.get(path);
  if (!url) {
    url = answer(path).then(async (response) => URL.createObjectURL(await response.blob()));
    url.catch(() => blobs.delete(path));
    blobs.set(path, url);
  }
  return url;
}

/** Lets go of pictures that are no longer shown, beyond `most`. Images load late: none may be shown when it is called. */
export function dropPictures(most = 0) {
  if (blobs.size <= most) return;
  for (const url of blobs.values()) url.then(URL.revokeObjectURL, () => {});
  blobs.clear();
}

/** Lets go of one picture that is no longer shown. */
export function dropPicture(kind, id) {
  const path = `v1/${kind}/${encodeURIComponent(id)}`;
  blobs.get(path)?.then(URL.revokeObjectURL, () => {});
  blobs.delete(path);
}

/** Shows a picture in an <img>; resolves to whether it could be had. */
export async function showPicture(image, kind, id) {
  const shows = (image.dataset.shows = `${kind}/${id}`);
  image.dataset.awaited = ""; // its place is seen, its alternative text not yet
  try {
    const url = await pictureUrl(kind, id);
    if (image.dataset.shows !== shows) return false;
    return await new Promise((resolve) => {
      image.onload = () => resolve(true);
      image.onerror = () => resolve(false);
      image.src = url;
    });
  } catch {
    return false;
  } finally {
    if (image.dataset.shows === shows) delete image.dataset.awaited;
  }
}
