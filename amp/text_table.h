// Tables as text.
#pragma once

#include <string>
#include <vector>

namespace mezzo::amp {

/// A line for each row, all of which have as many cells; columns are as wide as their widest cell.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace mezzo::amp
