// A browser that is too old cannot read the page's own program, so this one is written in old words and says so.
(function () {
  var good = "noModule" in HTMLScriptElement.prototype;
  try { new Function("class A { #a = 1; static { } get b() { return this.#a ?? 2; } }"); } catch (e) { good = good && e instanceof EvalError; }
  if (good && typeof structuredClone === "function" && window.CSS && CSS.supports("color", "color-mix(in srgb, red, blue)")) return;
  document.getElementById("app").innerHTML = "<p style='font: 16px sans-serif; padding: 2em'>This browser is too old for the studio: please use one of 2023 or later.</p>";
})();
