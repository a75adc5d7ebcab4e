# Run by cmake -P while the program is built: writes OUTPUT, a source with the texts of files as constants of the header HEADER in
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
