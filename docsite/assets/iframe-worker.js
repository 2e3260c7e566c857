// Worker for pages that were opened from a folder, where browsers refuse real ones: the script runs in a hidden frame.
// Search uses it; on a server nothing here happens.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = this.onerror = this.onmessageerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => setTimeout(() => this.tell(new MessageEvent("message", { data })));
      const script = inner.document.createElement("script");
      script.src = address;
      script.onload = () => {
        const messages = this.waiting;
        this.waiting = null;
        messages.forEach((data) => this.deliver(data));
      };
      script.onerror = () => this.tell(new Event("error"));
      inner.document.documentElement.append(script);
    }

    tell(event) {
      const listener = this[`on${event.type}`];
      if (listener) listener.call(this, event);
      this.dispatchEvent(event);
    }

    deliver(data) {
      this.frame?.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else setTimeout(() => this.deliver(data));
    }

    terminate() {
      this.frame?.remove();
      this.frame = null;
    }
  };
}
