// The page of the API: Swagger UI in the colour scheme of the other pages.
"use strict";
(() => {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function followScheme() {
    const { scheme } = root.dataset;
    root.classList.toggle("dark-mode", scheme ? scheme === "dark" : prefersDark.matches);
  }

  followScheme();
  prefersDark.addEventListener("change", followScheme);
  new MutationObserver(followScheme).observe(root, { attributeFilter: ["data-scheme"] });
  SwaggerUIBundle({
    dom_id: "#api",
    url: "/openapi.json",
    defaultModelsExpandDepth: -1,
    docExpansion: "list",
    validatorUrl: null, // it would send the document to another host
  });
})();
