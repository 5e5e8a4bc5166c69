# What `make install` and packages hold, in three parts: `program` (the binary, its manual pages, completions and examples),
# `mpi_KIND` (one library per MPI, which the program opens on demand) and `library` (libadjoint: all rooms but cli, their
# headers, and the files for find_package).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# ---- the program

install(TARGETS adjoint RUNTIME COMPONENT program)
# The folders of CUDA's libraries stay in the binary; where they are not, they do no harm.
set_target_properties(adjoint PROPERTIES INSTALL_RPATH "${CMAKE_BUILD_RPATH}")

# Pages and scripts come from the binary itself, which knows its commands. `copyright` is what Debian wants of every package:
# our licence, those of what the binary holds, and those of the studio's page where it was built.
set(written ${CMAKE_BINARY_DIR}/share)
file(GLOB page_licences CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/studio/dist/licences.txt)
set(licences ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/NOTICE ${page_licences})
add_custom_command(
  OUTPUT ${written}/done
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${written}
  COMMAND adjoint man --out ${written}/man1
  COMMAND sh -c "gzip -9n ${written}/man1/*"
  COMMAND adjoint completions bash > ${written}/adjoint
  COMMAND adjoint completions zsh > ${written}/_adjoint
  COMMAND adjoint completions fish > ${written}/adjoint.fish
  COMMAND ${CMAKE_COMMAND} -E cat ${licences} > ${written}/copyright
  COMMAND ${CMAKE_COMMAND} -E touch ${written}/done
  DEPENDS adjoint ${licences}
  COMMENT "Writing manual pages and completions"
  VERBATIM)
if(ADJOINT_SANITIZE)
  add_custom_target(adjoint_manual DEPENDS ${written}/done)  # nobody installs such a build
else()
  add_custom_target(adjoint_manual ALL DEPENDS ${written}/done)
endif()
install(DIRECTORY ${written}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
install(FILES ${written}/adjoint DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
# zsh looks elsewhere for what a distribution's package brings than for what is installed by hand.
install(CODE "
  set(folder site-functions)
  if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\")
    set(folder vendor-completions)
  endif()
  file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${folder}\" TYPE FILE
       FILES \"${written}/_adjoint\")" COMPONENT program)
install(FILES ${written}/adjoint.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)

# The texts inside the binary, to read and to begin one's own from.
set(examples ${CMAKE_INSTALL_DOCDIR}/examples)
install(DIRECTORY models functors optimizers devices templates DESTINATION ${examples} COMPONENT program)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES ${written}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

# ---- MPI: in the folder where comm/mpi.cpp and the loader look

get_property(mpi_libraries GLOBAL PROPERTY ADJOINT_MPI_LIBRARIES)
set(ADJOINT_MPI_PARTS)
foreach(library ${mpi_libraries})
  string(REGEX REPLACE ".*libadjoint_(.*)[.]so" "\\1" kind ${library})
  install(PROGRAMS ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi_${kind})
  install(FILES ${written}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/adjoint-${kind} COMPONENT mpi_${kind})
  list(APPEND ADJOINT_MPI_PARTS ${kind})
endforeach()

# ---- the library: adjoint::adjoint is all rooms, adjoint::plan and the others are single ones

get_property(rooms GLOBAL PROPERTY ADJOINT_ROOMS)
add_library(libadjoint INTERFACE)
foreach(room ${rooms})
  set_target_properties(adjoint_${room} PROPERTIES EXPORT_NAME ${room})
  target_link_libraries(libadjoint INTERFACE adjoint_${room})
  list(APPEND targets adjoint_${room})
endforeach()
set_target_properties(libadjoint PROPERTIES EXPORT_NAME adjoint)
# Every room links `base`, so what a user's compiler must know is said there.
target_compile_features(adjoint_base PUBLIC cxx_std_20)
target_compile_definitions(adjoint_base INTERFACE "$<INSTALL_INTERFACE:${ADJOINT_DEFINITIONS}>")
install(TARGETS libadjoint ${targets} EXPORT adjoint
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/adjoint)
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/adjoint COMPONENT library
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inc" PATTERN cli EXCLUDE
        REGEX "/jit/(tile_|vector_)[^/]*$" EXCLUDE)  # these want Xbyak, and no other header includes them
install(FILES ${written}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libadjoint-dev COMPONENT library)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/adjoint)
install(EXPORT adjoint NAMESPACE adjoint:: FILE adjointTargets.cmake DESTINATION ${package} COMPONENT library)
configure_package_config_file(cmake/adjointConfig.cmake.in ${CMAKE_BINARY_DIR}/adjointConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/adjointConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/adjointConfig.cmake ${CMAKE_BINARY_DIR}/adjointConfigVersion.cmake
        DESTINATION ${package} COMPONENT library)
install(DIRECTORY examples/library DESTINATION ${examples} COMPONENT library)
