// A config.json is refused, or is a preset of a family, and a small one becomes a scheme.
#include <algorithm>

#include "fuzz/fuzz_target.h"
#include "models/elaborate.h"
#include "models/format_config.h"
#include "models/library.h"

namespace adjoint {

FUZZ_TARGET(config_json) {
  const std::filesystem::path folder = fuzz_folder();
  put_file(folder / "config.json", input);
  const ModelText model = find_model(folder.string());
  const Document document = parse_document(model.text, model.file);
  ModelConfig config{.preset = model.preset, .settings = {}};
  const Settings settings = resolve_settings(document, model.file, config);
  const Format* format = find_format(document, "huggingface", model.architecture);
  CHECK(format, "the family was found by its architecture");
  // A list of the config has an entry for each layer.
  const auto layers = settings.find("layers");
  if (layers != settings.end() && layers->second > 8) return;
  refuse_or([&] { written_config(document, *format, model.file, settings); });
  const auto experts = settings.find("experts");
  if (experts != settings.end() && experts->second > 64) return;
  elaborate(document, model.file, config);
}

}  // namespace adjoint
