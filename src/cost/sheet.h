// What a device can do, as a text file: rates, memory, the link to the host. Sheets that come with
// Adjoint are devices/*.device at the root; users name their own by path.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "comm/route.h"
#include "scheme/type.h"

namespace adjoint {

struct DeviceSheet {
  std::string name, summary;
  bool per_core = false;  // rates are one core's: a CPU, whose threads the user chooses
  Bytes memory = {0};     // of the device; 0: unknown
  // FLOP/s that large matrix products reach, by dtype ("tf32" is float32 in that mode).
  std::map<std::string, double> products = {};
  double attention = 0.5;           // share of the products' rate, forward
  double attention_backward = 0.4;  // of the products' rate
  double arithmetic = 0;            // FLOP/s of elementwise and row ops
  double bandwidth = 0;             // bytes/s that a copy reaches, of one core or of the device
  double most_bandwidth = 0;        // bytes/s of all cores together
  double launch = 0;                // seconds that any call costs
  double link = 0;                  // bytes/s to the next tier; 0: there is no other memory
  bool overlaps = false;            // copies to the next tier run concurrently with arithmetic
  Bytes workspace = {0};            // the cap on a kernel's workspace
  Fabric fabric = {};               // between ranks that have such a device each

  // Whether the next tier is this device's own memory: a CPU's always is.
  bool one_memory() const { return per_core || link <= 0; }
};

// The sheet of a device that comes with Adjoint, or of a file that ends in .device. An unknown name
// is refused with a list of the known ones.
DeviceSheet find_device(std::string_view name);
std::vector<std::string> device_names();
// Errors name the file and the key.
DeviceSheet parse_device(std::string_view text, std::string_view file);
std::string print(const DeviceSheet& sheet);  // parse_device(print(s)) == s

struct DeviceFile {
  std::string_view name, text;
};
std::span<const DeviceFile> device_files();  // written by scripts/embed_texts.py

}  // namespace adjoint
