"""Tables, as archivists keep them: a CSV, TSV, XLSX, XLS or ODS file becomes rows of text, with remarks.

`text.read_sheet` and, in the decoding process, `workbook.read_sheet` turn bytes into a `content.Sheet`: its
rows of text. `content.arrange(sheet, choice)` finds the header row and the field of each column:

    TableContent(format, encoding, delimiter, sheets, sheet, header_row, header, fields, rows, remarks)
        header   ("Datei", "Titel", "Umfang")     fields   ("file", "title", "")
        rows     (TableRow(number=4, cells=("a.jpg", "Hafen", "3 Bl.")), ...)
        remarks  (Remark(kind, row=4, column=1, text="#REF!"), ...); str(remark) is a sentence

Rows have the number that spreadsheet programs show, rows without text are left out, and columns count from 0.
`pipeline.decoding.calls.read_table` does all of it for any format.
"""
