// A box on the large picture, to search by what is in it. The pointer draws it; arrows move it, with Shift they size it.

import { h } from "./elements.js";
import { t } from "./language.js";

const STEP = 0.04; // of the picture's side, a key
const LEAST = 0.04; // a smaller box is a click
const START = { left: 0.25, top: 0.2, right: 0.75, bottom: 0.6 };

/**
 * A box over `image` in `picture`, its frame. `onDone(file)` gets the part as a picture when the box's own key Enter or
 * the button that is returned asks for it. Returns {button, end}.
 */
export function partOf(picture, image, onDone) {
  let at = { ...START };
  let from = null;
  const box = h("button", { type: "button", class: "part", "aria-label": t("partBox") });
  const button = h("button", { type: "button", class: "go", onclick: search }, t("partSearch"));

  function show() {
    Object.assign(box.style, {
      left: `${100 * at.left}%`,
      top: `${100 * at.top}%`,
      width: `${100 * (at.right - at.left)}%`,
      height: `${100 * (at.bottom - at.top)}%`,
    });
  }

  const share = (value, start, size) => Math.min(1, Math.max(0, (value - start) / size));

  function placeOf(event) {
    const { left, top, width, height } = image.getBoundingClientRect();
    return { x: share(event.clientX, left, width), y: share(event.clientY, top, height) };
  }

  function start(event) {
    if (event.button !== 0) return;
    event.preventDefault(); // a picture would be dragged away
    from = placeOf(event);
    picture.setPointerCapture(event.pointerId);
  }

  function draw(event) {
    if (!from) return;
    const to = placeOf(event);
    const drawn = {
      left: Math.min(from.x, to.x),
      top: Math.min(from.y, to.y),
      right: Math.max(from.x, to.x),
      bottom: Math.max(from.y, to.y),
    };
    if (drawn.right - drawn.left < LEAST || drawn.bottom - drawn.top < LEAST) return;
    at = drawn;
    show();
  }

  function stop() {
    if (from) button.focus();
    from = null;
  }

  box.addEventListener("click", (event) => event.detail === 0 && search()); // Enter; a click ends a drawing
  box.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way) return;
    event.preventDefault();
    event.stopPropagation(); // outside of the box these keys go to the next result
    const within = (value, least, most) => Math.min(most, Math.max(least, value));
    const [across, down] = way.map((one) => one * STEP);
    if (event.shiftKey) {
      at.right = within(at.right + across, at.left + LEAST, 1);
      at.bottom = within(at.bottom + down, at.top + LEAST, 1);
    } else {
      const [x, y] = [within(across, -at.left, 1 - at.right), within(down, -at.top, 1 - at.bottom)];
      at = { left: at.left + x, top: at.top + y, right: at.right + x, bottom: at.bottom + y };
    }
    show();
  });

  async function search() {
    const [wide, high] = [image.naturalWidth, image.naturalHeight];
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round((at.right - at.left) * wide));
    canvas.height = Math.max(1, Math.round((at.bottom - at.top) * high));
    const context = canvas.getContext("2d");
    context.drawImage(image, -Math.round(at.left * wide), -Math.round(at.top * high));
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    onDone(new File([blob], t("partName"), { type: "image/png" }));
  }

  const listeners = { pointerdown: start, pointermove: draw, pointerup: stop, pointercancel: stop };
  for (const [name, listener] of Object.entries(listeners)) picture.addEventListener(name, listener);
  picture.classList.add("drawing");
  picture.append(box);
  show();
  box.focus();
  return {
    button,
    end() {
      for (const [name, listener] of Object.entries(listeners)) picture.removeEventListener(name, listener);
      picture.classList.remove("drawing");
      box.remove();
    },
  };
}
