// What a page gains with JavaScript: ages that go on, times of the reader's clock, a choice of the colour scheme, keys, copying, ticking, and saved filters.
// Every page works without this file.
"use strict";
(() => {
  const root = document.documentElement;
  const REOPEN_MS = 2000;
  const copied = new Set(); // texts: the record, from which the page is renewed, does not know them
  const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

  const scheme = localStorage.getItem("scheme");
  if (scheme) root.dataset.scheme = scheme;

  function age(moment, long) {
    const seconds = Math.max(0, (Date.now() - Date.parse(moment)) / 1000);
    const [length, unit] = units.find(([length]) => seconds >= length) ?? [1, "second"];
    const number = Math.floor(seconds / length);
    return long ? `${number} ${unit}${number === 1 ? "" : "s"}` : number + unit[0];
  }

  function renewAges() {
    for (const element of document.querySelectorAll("time[data-age]")) element.textContent = age(element.dateTime, element.dataset.age);
  }

  const shapes = {
    moment: { dateStyle: "short", timeStyle: "medium" }, minute: { dateStyle: "short", timeStyle: "short" },
    clock: { timeStyle: "medium" }, hour: { timeStyle: "short" },
  };

  function renewTimes() {
    renewAges();
    for (const element of document.querySelectorAll("time[data-local]")) {
      const moment = new Date(element.dateTime); // in Sweden, people write 2026-11-27 18:03:11
      if (!isNaN(moment)) element.textContent = moment.toLocaleString("sv", shapes[element.dataset.local]);
    }
  }

  async function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea"); // plain http has no clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }

  function rows() {
    return [...document.querySelectorAll("tr[data-href]")];
  }

  function select(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("current"));
    const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
    all.forEach((row) => row.classList.toggle("current", row === next));
    next.querySelector("a")?.focus();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select")) return;
    if (event.key === "/") { event.preventDefault(); document.getElementById("search")?.focus(); }
    if (event.key === "j") select(1);
    if (event.key === "k") select(-1);
    if (event.key === "x") document.querySelector("tr.current input[name=id]")?.click();
    if (event.key === "r") location.reload();
    if (event.key === "Enter" && !event.target.closest("a, button, summary, input")) {
      const row = document.querySelector("tr.current");
      if (row) location.href = row.dataset.href;
    }
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (button) {
      const text = button.dataset.copy; // the page may renew the button while this waits
      await copy(text);
      copied.add(text);
      showCopies();
    }
    if (event.target.closest("#scheme")) {
      const dark = root.dataset.scheme
        ? root.dataset.scheme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.scheme = dark ? "light" : "dark";
      localStorage.setItem("scheme", root.dataset.scheme);
    }
  });

  document.addEventListener("change", (event) => {
    const boxes = [...document.querySelectorAll("input[name=id]")];
    const all = document.querySelector("[data-tick-all]");
    if (event.target === all) boxes.forEach((box) => { box.checked = all.checked; });
    const ticked = boxes.filter((box) => box.checked).length;
    const said = document.querySelector("[data-ticked]");
    if (!said) return;
    all.checked = ticked > 0 && ticked === boxes.length;
    said.textContent = ticked ? `${ticked} ticked` : "";
  });

  // a person's own filters, by the page of the list: the address of each is all of it
  function savedFilters() {
    const place = document.querySelector("[data-filters]");
    const key = place && `filters ${place.dataset.filters} ${location.pathname}`;
    const read = () => JSON.parse(localStorage.getItem(key) ?? "{}");
    return place && { place, read, write: (saved) => localStorage.setItem(key, JSON.stringify(saved)) };
  }

  function showFilters() {
    const filters = savedFilters();
    if (!filters) return;
    filters.place.querySelectorAll(".saved").forEach((one) => one.remove());
    for (const [name, query] of Object.entries(filters.read())) {
      const link = Object.assign(document.createElement("a"), { href: query, textContent: name });
      const remove = Object.assign(document.createElement("button"), { type: "button", className: "small", textContent: "Remove" });
      remove.ariaLabel = `Remove the filter ${name}`;
      remove.addEventListener("click", () => {
        const { [name]: _, ...others } = filters.read();
        filters.write(others);
        showFilters();
      });
      const item = Object.assign(document.createElement("span"), { className: "saved" });
      item.append(link, " ", remove);
      filters.place.append(item);
    }
  }

  document.addEventListener("submit", (event) => {
    const { save } = event.target.dataset;
    if (!save) return;
    event.preventDefault();
    const filters = savedFilters();
    filters.write({ ...filters.read(), [event.target.elements.name.value.trim()]: save });
    event.target.reset();
    showFilters();
  });

  function markLost() {
    root.dataset.stream = "lost";
    for (const element of document.querySelectorAll(".freshness")) {
      element.classList.add("stale");
      element.textContent = "The connection to the server is lost: this page is not current.";
    }
  }
  document.addEventListener("htmx:sse:after:connection", () => { root.dataset.stream = "open"; });
  document.addEventListener("htmx:sse:error", markLost);
  // the login has ended: its page takes the place of what is shown here
  document.addEventListener("unauthorized", () => location.reload());
  // the extension opens a stream again that was open, but not one whose first request fails
  for (const failure of ["htmx:response:error", "htmx:error"]) {
    document.addEventListener(failure, (event) => {
      markLost();
      const source = event.target;
      if (event.detail?.ctx?.response?.status < 500) return; // the same request would be refused again
      setTimeout(() => {
        if (source.isConnected) htmx.ajax("GET", source.getAttribute("hx-sse:connect"), { source });
      }, REOPEN_MS);
    });
  }
  document.addEventListener("htmx:sse:close", (event) => {
    if (event.detail?.reason === "ended") markLost();
  });
  document.addEventListener("htmx:sse:after:message", () => { renewTimes(); renewTitle(); showCopies(); titleCells(); });
  // what a person opened, and what this file shows, stays while the page follows the record
  document.addEventListener("htmx:before:morph:attr", (event) => {
    const { attrName, newValue } = event.detail;
    const opened = attrName === "open" && newValue === null && event.target.matches("details");
    const shown = attrName === "hidden" && event.target.matches("button[data-copy]");
    if (opened || shown || attrName === "data-title") event.preventDefault();
  });

  function showCopies() {
    for (const button of document.querySelectorAll("button[data-copy]")) {
      button.removeAttribute("hidden");
      if (copied.has(button.dataset.copy)) button.textContent = "Copied";
    }
  }

  function renewTitle() {
    const page = document.getElementById("live")?.dataset.page;
    if (page) document.title = `${page} · arkline`;
  }

  function titleCells() {
    for (const table of document.querySelectorAll(".scroll table")) {
      const titles = [...table.querySelectorAll("thead th")].map((title) => title.textContent);
      for (const row of table.querySelectorAll("tbody tr")) {
        if (row.cells.length !== titles.length) continue;
        [...row.cells].forEach((cell, at) => { cell.dataset.title = titles[at]; });
      }
    }
  }

  setInterval(renewAges, 1000);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("scheme")?.removeAttribute("hidden");
    renewTimes();
    showCopies();
    titleCells();
    showFilters();
  });
})();
