// What a device can do, as a sheet of text: rates, bytes, the link to the next tier. Sheets that
// come with Adjoint are devices/*.device at the root; a path names one of the user's own.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "scheme/type.h"

namespace adjoint {

struct DeviceSheet {
  std::string name, summary;
  bool per_core = false;  // rates are one core's: a CPU, whose threads are the user's choice
  Bytes memory = {0};     // of the device; 0: unknown
  // FLOP/s that large matrix products reach, by dtype ("tf32" is float32 in that mode).
  std::map<std::string, double> products = {};
  double attention = 0.5;           // of the products' rate, forward
  double attention_backward = 0.4;  // of the products' rate
  double arithmetic = 0;            // FLOP/s of elementwise and row ops
  double bandwidth = 0;             // bytes/s that a copy reaches, of one core or of the device
  double most_bandwidth = 0;        // bytes/s of all cores together
  double launch = 0;                // seconds that any call costs
  double link = 0;                  // bytes/s to the next tier; 0: there is no other memory
  bool overlaps = false;            // copies to the next tier run beside the arithmetic
  Bytes workspace = {0};            // no kernel may ask for more
};

// Of a device that comes with Adjoint, or of a file that ends in .device. Unknown names are
// refused with the list.
DeviceSheet find_device(std::string_view name);
std::vector<std::string> device_names();
// Mistakes name file and key.
DeviceSheet parse_device(std::string_view text, std::string_view file);
std::string print(const DeviceSheet& sheet);  // parse_device(print(s)) == s

struct DeviceFile {
  std::string_view name, text;
};
std::span<const DeviceFile> device_files();  // written by scripts/embed_texts.py

}  // namespace adjoint
