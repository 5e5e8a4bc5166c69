// A run's folder that is made of another run's: the same model, tokenizer and settings, with other
// parameters and another stack, and without an optimizer's state.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "train/store.h"

namespace adjoint {

void check_is_run(const SavePaths& from);  // refuses a folder that is none
void check_unheld(const SavePaths& to);    // refuses a folder that already holds a run

// `save` writes the parameters. `made` is how the run was made ("merged"), and `about` what is to
// be known of it; run.json keeps both.
void write_derived_run(const SavePaths& from, const SavePaths& to, const std::string& stack,
                       const std::string& made, const nlohmann::json& about,
                       const std::function<void()>& save);

}  // namespace adjoint
