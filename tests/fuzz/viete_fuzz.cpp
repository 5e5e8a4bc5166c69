// A diagram is refused, or is a model that is drawn and read as it was.
#include "base/json.h"
#include "fuzz/fuzz_target.h"
#include "models/viete.h"

namespace adjoint {

FUZZ_TARGET(viete) {
  const nlohmann::json diagram = parse_json(input);
  const std::string text = viete_text(diagram, "d.json", false);
  const Document document = parse_document(text, "d.json");
  CHECK(parse_document(viete_text(diagram, "d.json", true), "d.json") == document,
        "places change nothing");
  CHECK(read_viete(viete_diagram(document, "d"), "d.json") == document,
        "what is drawn is read as it was");
}

}  // namespace adjoint
