# `make deb`: Debian packages by CPack. `adjoint` is the program and needs neither CUDA nor MPI, `adjoint-openmpi` (or whichever
# MPI was there) lets it run as several processes, and `libadjoint-dev` is the library for programs of one's own.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME adjoint)
set(CPACK_PACKAGE_VENDOR Adjoint)
set(CPACK_PACKAGE_CONTACT "Adjoint <adjoint@invalid>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program library)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # what the binaries link is found, not written here
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME adjoint)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
    "trains decoder-only language models written as text\nA model is a text, an optimization is a functor from schemes to schemes,\nand the memory of a training step is known to the byte before it runs.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS libzstd1)  # opened where data are compressed, so no binary names it
set(suggested libadjoint-dev)

foreach(kind ${ADJOINT_MPI_PARTS})
  list(APPEND CPACK_COMPONENTS_ALL mpi_${kind})
  list(APPEND suggested adjoint-${kind})
  string(TOUPPER mpi_${kind} part)
  set(CPACK_DEBIAN_${part}_PACKAGE_NAME adjoint-${kind})
  set(CPACK_DEBIAN_${part}_PACKAGE_DEPENDS "adjoint (= ${PROJECT_VERSION})")
  set(CPACK_COMPONENT_${part}_DESCRIPTION "lets adjoint run as several processes, by ${kind}\nThe library that adjoint opens when a launcher has started it.")
endforeach()
if(openmpi IN_LIST ADJOINT_MPI_PARTS)
  string(APPEND CPACK_DEBIAN_MPI_OPENMPI_PACKAGE_DEPENDS ", openmpi-bin")
endif()
list(JOIN suggested ", " CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libadjoint-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS
    "libdnnl-dev, ocl-icd-opencl-dev, libfmt-dev, nlohmann-json3-dev, libtomlplusplus-dev, zlib1g-dev, libbenchmark-dev, libpcre2-dev, libutf8proc-dev, libsentencepiece-dev")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "libadjoint, for programs of one's own\nStatic libraries, headers and the files for find_package(adjoint).")
include(CPack)
