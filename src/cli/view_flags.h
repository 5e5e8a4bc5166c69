// Options that stand before the command, for whoever starts commands on behalf of others
// (studio/children.h): `adjoint --inside FOLDER --read-only --drafts show ...`. See
// base/file_view.h.
#pragma once
#include <string>
#include <vector>

namespace adjoint {

struct ViewFlags {
  std::string inside;
  bool read_only = false;
  // Standard input is one JSON object: {"drafts": {path: text}, "stdin": what the command reads}.
  bool drafts = false;
};

// Removes these options from the arguments of the program, of which the first is its name.
ViewFlags take_view_flags(std::vector<char*>& arguments);

// From here on files are opened as the flags say. Reads standard input if there are drafts.
void apply(const ViewFlags& flags);

}  // namespace adjoint
