"use strict";
// The pages work without this: it searches as one types, moves through the list by keys, and follows what is being read.
const by = (id) => document.getElementById(id);
const post = (address, fields) => fetch(address, {
  method: "POST", body: new URLSearchParams(fields), headers: { Accept: "application/json" }, redirect: "manual", keepalive: true,
});

const say = (sentence, bad = false) => {
  const notice = by("notice");
  notice.textContent = sentence;
  notice.hidden = !sentence;
  notice.classList.toggle("bad", bad);
  notice.classList.toggle("good", !bad);
};

const failure = async (answer) => {
  if (answer.ok || answer.type === "opaqueredirect") return "";
  try { return (await answer.json()).sentence; } catch { return "Error; reload the page."; }
};

const searching = () => {
  const form = by("ask"), field = by("q"), list = by("list");
  const wait = 70;  // milliseconds after a key
  let timer = 0, asked = null, first = 0, current = Promise.resolve();
  const chosen = () => ({ ...by("state").dataset });
  let state = chosen();

  const keep = () => history.replaceState({ q: field.value, source: state.source, since: state.since, order: state.order }, "", "/");

  const search = async () => {
    clearTimeout(timer);
    asked?.abort();
    const mine = asked = new AbortController();
    const { source, since, order } = state;
    list.setAttribute("aria-busy", "true");
    try {
      const words = new URLSearchParams({ q: field.value, source, since, order, first });
      const answer = await fetch(`/list?${words}`, { signal: mine.signal, headers: { Accept: "text/html" } });
      const text = await answer.text();
      if (mine.signal.aborted) return;
      if (!answer.ok) { say("The search did not respond; reload the page.", true); return; }
      const focused = list.contains(document.activeElement) ? document.activeElement.id : "";
      list.innerHTML = text;
      if (focused) by(focused)?.focus();
      state = chosen();
      keep();
    } catch (error) {
      if (error.name !== "AbortError") say("The search is not running; start it with: quorank search serve", true);
    } finally {
      if (asked === mine) list.removeAttribute("aria-busy");
    }
  };
  const again = (change = {}, from = 0) => { state = { ...state, ...change }; first = from; return current = search(); };
  const results = () => [...list.querySelectorAll(".open")];

  field.addEventListener("input", () => {
    say("");
    first = 0;
    clearTimeout(timer);
    timer = setTimeout(() => { timer = 0; current = search(); }, wait);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (timer || !results().length) await again(); else await current;
    results()[0]?.focus();
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const at = document.activeElement, typed = at.matches("input, textarea");
    if (event.key === "/" && !typed) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "Escape") {
      event.preventDefault();
      field.value = "";
      field.focus();
      say("");
      again();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const all = results(), row = at.closest(".result");
      const place = row ? all.findIndex((one) => row.contains(one)) : -1;
      if (!all.length || (at !== field && !row)) return;
      event.preventDefault();
      const next = event.key === "ArrowDown" ? Math.min(place + 1, all.length - 1) : place - 1;
      (next < 0 ? field : all[next]).focus();
    }
  });

  list.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) { if (link) learn(link); return; }
    if (link.dataset.set) { event.preventDefault(); again({ [link.dataset.set]: link.dataset.value }); }
    else if (link.dataset.first) { event.preventDefault(); again({}, link.dataset.first).then(() => { scrollTo(0, 0); results()[0]?.focus(); }); }
    else if ("clear" in link.dataset) { event.preventDefault(); again({ source: "", since: "" }); }
    else learn(link);
  });
  list.addEventListener("auxclick", (event) => { const link = event.target.closest("a"); if (link && event.button === 1) learn(link); });
  const learn = (link) => { if (link.dataset.document) post("/api/open", { token: state.token, document: link.dataset.document }); };

  list.addEventListener("submit", async (event) => {
    event.preventDefault();
    const sent = event.target, opening = sent.matches(".opening");
    const answer = await post(sent.action, new FormData(sent)).catch(() => null);
    const problem = answer ? await failure(answer) : "The search is not running; start it with: quorank search serve";
    if (problem) { say(problem, true); return; }
    if (opening) { say((await answer.json()).sentence); return; }
    await again({}, first);
    say("Forgotten: it is erased from the index for good.");
    field.focus();
  });

  if (!field.value && history.state?.q) {
    field.value = history.state.q;
    const { source, since, order } = history.state;
    again({ source, since, order });
  } else if (location.search) keep();
  field.focus();
  field.setSelectionRange(field.value.length, field.value.length);
};

const following = () => {
  const list = by("sources");
  const look = async () => {
    try {
      const answer = await fetch("/sources/list", { headers: { Accept: "text/html" } });
      if (!answer.ok) return;
      const text = await answer.text();
      if (!list.contains(document.activeElement) && !list.querySelector("details.sure[open]")) {
        const open = [...list.querySelectorAll("details[open]")].map((details) => details.id);
        list.innerHTML = text;
        for (const id of open) by(id)?.setAttribute("open", "");
      }
    } catch { return; }
    again();
  };
  const again = () => setTimeout(look, by("reading").dataset.reading === "yes" ? 700 : 5000);
  again();
};

if (by("ask")) searching();
if (by("sources")) following();
if (location.search.startsWith("?done=")) history.replaceState(null, "", location.pathname);
