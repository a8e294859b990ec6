// Search runs in a Worker. From the file system browsers refuse to start one; there, a hidden
// frame of the same page stands in for it, so that search works without a server.
if (location.protocol === "file:") {
  window.Worker = class {
    onmessage = null;
    onerror = null;

    constructor(address) {
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "Search";
      document.body.append(frame);
      const inside = frame.contentWindow;
      // A Worker gets and gives copies, after the present event.
      inside.postMessage = (data) => {
        const copy = structuredClone(data);
        setTimeout(() => this.onmessage?.({ data: copy }));
      };
      const script = inside.document.createElement("script");
      script.src = new URL(address, location.href);
      this.loaded = new Promise((resolve) => {
        script.onload = resolve;
        script.onerror = () => this.onerror?.(new Event("error"));
      });
      inside.document.body.append(script);
      this.frame = frame;
    }

    async postMessage(data) {
      const copy = structuredClone(data);
      await this.loaded;
      setTimeout(() => this.frame.contentWindow?.onmessage?.({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
