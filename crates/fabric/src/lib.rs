//! Who is where: neighbours, link states, routes, circuits; pure protocol
