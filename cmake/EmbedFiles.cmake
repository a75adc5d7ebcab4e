# Run by cmake -P during the build: writes the source file OUTPUT, with the texts of files as constants that the header HEADER declares in
# NAMESPACE. FILES: NAME=PATH, separated by "|".
set(source "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
string(REPLACE "|" ";" FILES "${FILES}")
foreach(entry IN LISTS FILES)
  string(REGEX MATCH "^([^=]+)=(.+)$" _ "${entry}")
  set(name "${CMAKE_MATCH_1}")
  file(READ "${CMAKE_MATCH_2}" text)
  string(APPEND source "\nconst std::string_view ${name} = R\"embedded(${text})embedded\";\n")
endforeach()
file(WRITE "${OUTPUT}" "${source}\n}  // namespace ${NAMESPACE}\n")
