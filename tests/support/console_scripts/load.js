async (name) => {
  const base = document.querySelector("script[type=module]").src;
  return import(new URL(`${name}.js`, base));
}
