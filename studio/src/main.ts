import "./app.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { hello } from "./api/client";
import { open_model } from "./state/actions";
import { asked } from "./state/asked";
import { project } from "./state/project.svelte";
import { results } from "./state/results.svelte";
import { settings } from "./state/settings.svelte";
import { recall, remember, set_folder } from "./state/store";
import { ended, is_drawn, timings } from "./state/timings";
import { view } from "./state/view.svelte";

declare global {
  interface Window {
    __studio: unknown;
  }
}
window.__studio = {
  timings,
  is_drawn,
  ended,
  view,
  settings,
  results,
  project,
  open_model,
  recall,
  remember,
  asked,
}; // what tests read

// Whatever is remembered is of a folder, and nothing can be drawn without the server: the page begins when it has answered.
const app = document.getElementById("app")!,
  wait = document.createElement("p");
wait.textContent = "The studio's server does not answer. The page begins when it does.";
for (;;) {
  try {
    const { folder, version } = await hello();
    project.folder = folder.name;
    project.version = version;
    set_folder(folder.path);
    break;
  } catch {
    app.append(wait);
    await new Promise((done) => setTimeout(done, 1500));
  }
}
wait.remove();
mount(App, { target: app });
