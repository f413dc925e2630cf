// Light or dark, before anything is painted: as chosen here before, else as the system has it.
"use strict";
{
  const KEY = "spillover-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage may be forbidden; then nothing is remembered
    }
  };
  const apply = () => {
    const chosen = stored();
    const theme = chosen ?? (system.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("theme", { detail: theme }));
  };
  globalThis.switchTheme = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      const usual = system.matches ? "dark" : "light";
      if (next === usual) localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, next);
    } catch {
      // see above
    }
    document.documentElement.dataset.theme = next;
    document.dispatchEvent(new CustomEvent("theme", { detail: next }));
  };
  system.addEventListener("change", apply);
  apply();
}
