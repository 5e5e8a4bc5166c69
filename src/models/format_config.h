// The settings of a model in a format of others (scheme/format.h): config.json -> axes and numbers,
// and back. A field that the format's section does not speak of is refused by name, for it may
// change what the model computes.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "models/settings.h"

namespace adjoint {

using OrderedJson = nlohmann::ordered_json;

// What `config` says of the model's axes and numbers; others keep the text's values. `place` is
// config.json as errors name it, `file` the model's text.
Settings read_config(const Document& document, const Format& format, std::string_view file,
                     const nlohmann::json& config, const std::string& place);

// The fields for these settings, all of the model's.
OrderedJson written_config(const Document& document, const Format& format, std::string_view file,
                           const Settings& settings);

// The first of the document's formats of this kind, or the one of this architecture; nullptr if
// there is none.
const Format* find_format(const Document& document, std::string_view kind,
                          std::string_view architecture = "");

}  // namespace adjoint
