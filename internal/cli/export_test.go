package cli

var WriteCompletion = writeCompletion
