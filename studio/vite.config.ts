import { defineConfig } from "vite";
import { svelte } from "@sveltejs/vite-plugin-svelte";

// Every address is relative: the server puts a token of its start before all of them.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: { target: "es2022", assetsInlineLimit: 0, chunkSizeWarningLimit: 2000, modulePreload: { polyfill: false } },
  worker: { format: "es" },
});
