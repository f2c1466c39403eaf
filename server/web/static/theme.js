/* The colour theme, applied before the page is painted: "light", "dark", or what the system prefers if nothing is stored. */
"use strict";
(() => {
  let theme = "";
  try {
    theme = localStorage.getItem("theme") ?? "";
  } catch {
    // Storage may be forbidden: then the system's preference counts.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
