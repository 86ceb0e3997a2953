"use strict";
// Light or dark: as the system says, until the button is used.
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
// The values at the nearest x, where the pointer is.
const tip = document.getElementById("tip");
for (const svg of document.querySelectorAll("svg.chart")) {
  const columns = JSON.parse(svg.dataset.hover);
  const cursor = svg.querySelector(".cursor");
  svg.addEventListener("pointermove", (e) => {
    if (columns.length === 0) return;
    const box = svg.getBoundingClientRect();
    const x = (e.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const near = columns.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);
    cursor.setAttribute("x1", near.x);
    cursor.setAttribute("x2", near.x);
    cursor.style.visibility = "visible";
    tip.replaceChildren();
    tip.appendChild(document.createElement("b")).textContent = near.n;
    for (const row of near.r) {
      const line = tip.appendChild(document.createElement("div"));
      line.appendChild(document.createElement("span")).className = "swatch c" + row.c;
      line.append(row.n + "  " + row.v);
    }
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(8, e.clientX + 16 + w > innerWidth ? e.clientX - w - 16 : e.clientX + 16) + "px";
    tip.style.top = Math.max(8, Math.min(e.clientY + 16, innerHeight - h - 8)) + "px";
  });
  svg.addEventListener("pointerleave", () => {
    tip.hidden = true;
    cursor.style.visibility = "hidden";
  });
}
