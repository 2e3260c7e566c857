"use strict";
const connect = () => {
  const source = new EventSource("events");
  const live = (word) => { document.body.dataset.live = word; };
  source.onopen = () => live("yes");
  source.addEventListener("change", (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) {
      if (id === "title") { document.title = new DOMParser().parseFromString(html, "text/html").body.textContent; continue; }
      const section = document.getElementById(id);
      if (!section) continue;
      const open = [...section.querySelectorAll("details[open]")].map((details) => details.id);
      section.innerHTML = html;
      for (const details of open) document.getElementById(details)?.setAttribute("open", "");
    }
  });
  source.addEventListener("over", () => { source.close(); live("over"); });
  source.onerror = () => {
    live("no");
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
  addEventListener("pagehide", () => source.close(), { once: true });
};
connect();
